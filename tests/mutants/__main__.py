"""`python -m tests.mutants`: see `command`."""

from __future__ import annotations

import signal
import sys

from tests import conftest  # noqa: F401 (temporary files go where those of tests go)
from tests.mutants.command import main

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # put away what was started
    sys.exit(main())
