"""`python -m tests.simulator`: see `many`."""

from __future__ import annotations

import sys

from .many import main

if __name__ == "__main__":
    sys.exit(main())
