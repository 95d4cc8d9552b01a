"""Uploads in parts that were begun and not completed: S3 keeps their parts, and charges them, until they are aborted.

They are no objects: no listing shows them, and no reader finds them. The driver of files can neither list nor abort
them, so this asks botocore.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyarrow import fs

from flinkstate.errors import MissingHereError
from flinkstate.files import os_errors
from flinkstate.files.storage import Location
from flinkstate.files.stores import s3_endpoint


@dataclass(frozen=True, slots=True)
class UnfinishedUpload:
    """An upload of the file `shown`, which began at `begun_at`, in milliseconds."""

    shown: str
    begun_at: int
    bucket: str
    key: str
    id: str
    client: Any

    def abort(self) -> None:
        """Has the store remove the parts."""
        with _asking(self.shown):
            self.client.abort_multipart_upload(Bucket=self.bucket, Key=self.key, UploadId=self.id)


def unfinished_uploads(folder: Location) -> Iterator[UnfinishedUpload]:
    """Yields the uploads of files in the folder and below it; none if it isn't on S3."""
    if not isinstance(folder.filesystem, fs.S3FileSystem):
        return
    if importlib.util.find_spec("botocore") is None:
        raise MissingHereError("to look for unfinished uploads on S3, install botocore: stateferry[s3] brings it")
    import botocore.session

    bucket, _, prefix = folder.path.partition("/")
    region, endpoint = folder.filesystem.region, s3_endpoint()
    with _asking(folder.shown):
        client = botocore.session.get_session().create_client("s3", region_name=region, endpoint_url=endpoint)
        pages = client.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        try:
            found = [upload for page in pages for upload in page.get("Uploads", ())]
        except client.exceptions.NoSuchBucket:
            # That of an earlier target may be gone.
            found = []
    for upload in found:
        key = upload["Key"]
        shown = folder.child(key.removeprefix(f"{prefix}/")).shown
        yield UnfinishedUpload(
            shown, int(upload["Initiated"].timestamp() * 1000), bucket, key, upload["UploadId"], client
        )


@contextmanager
def _asking(shown: str) -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except (BotoCoreError, ClientError) as error:
        raise os_errors.own_error(OSError(str(error)), shown, "asked for unfinished uploads") from error
