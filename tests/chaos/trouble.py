"""What goes wrong during a run: drawn by a seed, so that it can be drawn again."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field

from tests.chaos.troubled_store import Fault, Request

_PASSING = (Fault.BUSY, Fault.FAILS_AFTER, Fault.REFUSED, Fault.LOST, Fault.TORN, Fault.SHORT)
_LIES = (Fault.LESS, Fault.MORE)
# A store that is away refuses every connection.
_STAYING = (Fault.EXPIRED, Fault.FULL, Fault.BUSY, Fault.REFUSED, Fault.SILENT)
_SHARES = (0.003, 0.02, 0.1)
_SLOWEST = 0.3


@dataclass
class Trouble:
    """Faults of a store: a share of all requests at any time, and often one that stays, from some request on.

    `requests` is how many an undisturbed run sends. A fault that stays ends after some seconds, or with `lift`.
    """

    seed: str
    requests: int
    lifted: bool = False
    began: float | None = None
    share: float = field(init=False)
    faults: tuple[Fault, ...] = field(init=False)
    staying: Fault | None = field(init=False)
    since: int = field(init=False)
    seconds: float = field(init=False)

    def __post_init__(self) -> None:
        drawn = random.Random(self.seed)
        self.share = drawn.choice(_SHARES)
        kinds = (*_PASSING, *(_LIES if drawn.random() < 0.3 else ()))
        self.faults = tuple(drawn.sample(kinds, drawn.randint(1, len(kinds))))
        self.staying = drawn.choice(_STAYING) if drawn.random() < 0.6 else None
        self.since = drawn.randint(1, self.requests)
        # Short ones are over before the driver gives up.
        self.seconds = drawn.choice((0.5, 3.0, 3600.0))

    def __str__(self) -> str:
        names = ", ".join(fault.name for fault in self.faults)
        stays = f"; from request {self.since} on {self.staying.name} for {self.seconds} s" if self.staying else ""
        return f"seed {self.seed}: {self.share:.1%} of requests: {names}{stays}"

    @property
    def lies(self) -> bool:
        return any(fault in _LIES for fault in self.faults)

    def __call__(self, request: Request) -> Fault | float | None:
        if self.lifted:
            return None
        if self.staying is not None and request.number >= self.since:
            self.began = self.began or time.monotonic()
            if time.monotonic() - self.began < self.seconds and (
                self.staying is not Fault.FULL or request.method in ("PUT", "POST")
            ):
                return self.staying
        drawn = random.Random(f"{self.seed}/{request.number}")
        if drawn.random() < self.share:
            return drawn.choice(self.faults)
        return drawn.uniform(0, _SLOWEST) if drawn.random() < self.share else None

    def lift(self) -> None:
        self.lifted = True
