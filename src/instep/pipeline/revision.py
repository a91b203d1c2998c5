"""The revision of a project: the commit of git that is checked out."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

#: So long git is waited for.
_SECONDS: Final = 5.0


def revision_of(folder: Path) -> str:
    """The commit that is checked out in this folder's git repository, with `+` for changes since; '' without one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if not commit:
        return ""
    return commit + ("+" if _git(folder, "status", "--porcelain", "--untracked-files=no", "--", ".") else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(  # noqa: S603 - git is found in the PATH, as for any user; what it is told is fixed here
            command, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
