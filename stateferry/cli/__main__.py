"""`python -m stateferry.cli`: the command line where no script is installed."""

import sys

from stateferry.cli import main

sys.exit(main())
