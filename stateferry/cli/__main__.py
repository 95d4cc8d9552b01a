"""`python -m stateferry.cli`: the command line for an environment in which no script is installed."""

import sys

from stateferry.cli import main

sys.exit(main())
