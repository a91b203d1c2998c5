"""`python -m instep` is `instep`."""

import sys
from pathlib import Path

# Python puts the current folder first, where files of a project could stand in for libraries.
if not sys.flags.safe_path and sys.path and Path(sys.path[0]) == Path.cwd():
    del sys.path[0]

from instep.cli import main

if __name__ == "__main__":
    sys.exit(main())
