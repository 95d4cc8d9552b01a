"""`stateferry`, whose workers are the process itself instead of Spark's."""

from __future__ import annotations

import sys
from contextlib import nullcontext

from stateferry.cli import engine, main
from stateferry.steps.workers import InProcess

if __name__ == "__main__":
    engine.local_workers = lambda *_: nullcontext(InProcess())
    sys.exit(main())
