"""`python -m commonplace` is the program `commonplace`."""

import sys

from commonplace.cli import main

sys.exit(main())
