"""A process in which the libraries are loaded already, which takes longer than most tests: it forks for each run of
pytest that it is asked for, on a line of JSON, and says the fork's process id, and then how it ended.

It is started as a script, in the copy of the tree: of that, nothing may be loaded before there is a slip in it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
from collections.abc import Sequence
from typing import Any, Final

#: Those that have no threads yet when they are loaded.
_LIBRARIES: Final = (
    "alembic.command", "fastapi", "fsspec", "httpx", "hypothesis.core", "msgspec", "numpy", "pathspec", "pyarrow",
    "pyarrow.compute", "pyarrow.parquet", "pydantic", "pytest", "rich.console", "rich.progress", "rich.table",
    "schemathesis", "sqlalchemy.dialects.sqlite", "stamina", "typer", "yaml",
)  # fmt: skip


def main() -> int:
    for name in _LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if not child:
            return _run(asked["options"], asked["log"])
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
    return 0


def _run(options: Sequence[str], log: str) -> int:
    """In a session of its own, so that it can be ended with all that it started."""
    os.setsid()
    said, nothing = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), os.open(os.devnull, os.O_RDONLY)
    for to, descriptor in ((nothing, 0), (said, 1), (said, 2)):
        os.dup2(to, descriptor)
    pytest: Any = importlib.import_module("pytest")
    return int(pytest.main(list(options)))


if __name__ == "__main__":
    sys.exit(main())
