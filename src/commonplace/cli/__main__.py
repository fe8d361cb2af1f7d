"""`python -m commonplace.cli` is the program `commonplace`, as in settings that earlier versions wrote."""

import sys

from commonplace.cli import main

sys.exit(main())
