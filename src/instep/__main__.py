"""`python -m instep` is `instep`."""

import sys

from instep.cli import main

if __name__ == "__main__":
    sys.exit(main())
