"""Slots for requests: the processes of a machine share so many to a host.

A slot is a locked file; the system unlocks it when its process dies, however that ends. Processes that see the same
folder for temporary files, and are of one user, are of one machine here.
"""

from __future__ import annotations

import fcntl
import os
import random
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from instep.domain.fingerprint import digest
from instep.errors import UserError

#: Seconds between two looks for a free slot, at most.
_LOOK: Final = 0.02


@contextmanager
def slot(url: str, number: int | None) -> Iterator[None]:
    """Hold one of the `number` slots of the URL's host; waits until one is free. None: there is no limit."""
    if number is None:
        yield
        return
    folder = _folder(url)
    while (file := _taken(folder, number)) is None:
        time.sleep(random.uniform(_LOOK / 4, _LOOK))  # noqa: S311 (no secret)
    try:
        yield
    finally:
        # Not by closing alone: a process that was forked meanwhile has it, too.
        fcntl.flock(file, fcntl.LOCK_UN)
        os.close(file)


def _taken(folder: Path, number: int) -> int | None:
    """The locked file of a free slot; None if there is none."""
    first = random.randrange(number)  # noqa: S311 (no secret)
    for at in range(number):
        file = os.open(folder / str((first + at) % number), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
        else:
            return file
    return None


def _folder(url: str) -> Path:
    """The folder of the host's slots. Raises `UserError` if there cannot be one."""
    parts = urlsplit(url)
    mine = Path(tempfile.gettempdir()) / f"instep-requests-{os.getuid()}"
    folder = mine / digest([parts.scheme, parts.hostname or "", parts.port or ""])
    try:
        mine.mkdir(mode=0o700, exist_ok=True)
        found = mine.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            raise PermissionError(1, "it belongs to another user")
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"requests at once cannot be counted: {(error.strerror or type(error).__name__).lower()}",
            where=str(mine),
            hint="Let TMPDIR name a folder that can be written, or take `requests_at_once` out of `embed`.",
        ) from error
    return folder
