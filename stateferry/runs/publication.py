"""What a publication records: which savepoint and which snapshots of the tables belong together, and their source."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """The content of a publication; readers who need consistent data go through it.

    `metadata_digest` is the SHA-256 of the target's `_metadata`, `tables` are the snapshot ids by table.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str
    plan_fingerprint: str
    source: str
    checkpoint_id: int
    target: str
    metadata_digest: str
    tables: dict[str, int]

    def to_json(self) -> str:
        return self.model_dump_json()

    @classmethod
    def of_json(cls, text: str) -> Record:
        return cls.model_validate_json(text)


@dataclass(frozen=True, slots=True)
class Publication:
    """A record in the history of its job; `previous` is the sequence of the publication that stood before it."""

    job: str
    sequence: int
    previous: int | None
    published_at: int
    record: Record
    rolled_back_at: int | None = None
