"""`python -m dara_trl`: the command `dara-trl`."""

import sys

from .cli import main


sys.exit(main())
