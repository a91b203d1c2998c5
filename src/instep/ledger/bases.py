"""Base files: what is known of an instance's documents, in Arrow columns beside the ledger, which says which of them
count.

They say nothing that the ledger does not: one that is lost, torn, damaged or not named costs a read of the table. A
file is called after the digest of its bytes, so the name that the ledger has tells whether it is as it was written.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX: Final = ".arrow"
_NAME: Final = re.compile("[0-9a-f]{32}")
#: Seconds for which a file that nothing names is left alone: its writer may be about to name it.
_GRACE: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The base files in a folder."""

    folder: Path

    def read(self, name: str) -> pa.Table | None:
        """A file, mapped into memory: a column that is not looked at takes none. None if it is lost or damaged: Arrow
        itself does not look, and takes wrong bytes for values, or crashes on them.
        """
        import pyarrow as pa

        file = self.folder / f"{name}{_SUFFIX}"
        try:
            if _digest(file) != name:
                return None
            with pa.memory_map(str(file)) as mapped:
                return pa.ipc.open_file(mapped).read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def write(self, table: pa.Table) -> str:
        """Write a file, and return its name, which only the same bytes have. It is whole, or not there."""
        import pyarrow as pa

        self.folder.mkdir(parents=True, exist_ok=True)
        torn = self.folder / uuid.uuid4().hex
        try:
            with torn.open("wb") as file:
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
                file.flush()
                os.fsync(file.fileno())
            name = _digest(torn)
            torn.rename(self.folder / f"{name}{_SUFFIX}")
        except BaseException:
            with suppress(OSError):
                torn.unlink()
            raise
        return name

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove files that are not named, unless a process may be writing them."""
        with suppress(OSError):
            for file in self.folder.iterdir():
                ours = _NAME.fullmatch(file.stem) is not None
                if ours and file.stem not in names and time.time() - file.stat().st_mtime > _GRACE:
                    file.unlink(missing_ok=True)


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=16)).hexdigest()
