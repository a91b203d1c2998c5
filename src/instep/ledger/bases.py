"""Base files: what is known of an instance's documents, in Arrow columns beside the ledger, which says which of them
count.

They say nothing that the ledger does not: one that is lost, torn or not named costs a read of the table.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

#: Columns of a base, which is in the order of the URIs: so are listings of tables.
BASE: Final = ("document_id", "uri", "size", "version", "chunks")

_SUFFIX: Final = ".arrow"
_NAME: Final = re.compile("[0-9a-f]{32}")
#: Seconds for which a file that nothing names is left alone: its writer may be about to name it.
_GRACE: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The base files in a folder."""

    folder: Path

    def read(self, name: str) -> pa.Table | None:
        """A file, mapped into memory: what is not looked at is not read. None if it is lost."""
        import pyarrow as pa

        try:
            with pa.memory_map(str(self.folder / f"{name}{_SUFFIX}")) as mapped:
                return pa.ipc.open_file(mapped).read_all()
        except (OSError, pa.ArrowInvalid):
            return None

    def write(self, table: pa.Table) -> str:
        """Write a file, and return its name, which no other ever has. It is whole, or not there."""
        import pyarrow as pa

        name = uuid.uuid4().hex
        self.folder.mkdir(parents=True, exist_ok=True)
        torn = self.folder / name
        try:
            with torn.open("wb") as file:
                with pa.ipc.new_file(file, table.schema) as writer:
                    writer.write_table(table)
                file.flush()
                os.fsync(file.fileno())
            torn.rename(torn.with_suffix(_SUFFIX))
        except BaseException:
            with suppress(OSError):
                torn.unlink()
            raise
        return name

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove what is not named, unless somebody may be writing it."""
        with suppress(OSError):
            for file in self.folder.iterdir():
                ours = _NAME.fullmatch(file.stem) is not None
                if ours and file.stem not in names and time.time() - file.stat().st_mtime > _GRACE:
                    file.unlink(missing_ok=True)
