"""Base files: what is known of an instance's documents, in Arrow columns beside the ledger, which says which of them
count.

They say nothing that the ledger does not: one that is lost, torn or damaged is told, and costs a read of the table. A
file is called after the digest of its bytes, so the name that the ledger has tells whether it is as it was written.
"""

from __future__ import annotations

import hashlib
import logging
import re
import uuid
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Final

from instep.errors import InstepError
from instep.ledger.state_files import StateFiles

if TYPE_CHECKING:
    import pyarrow as pa

_SUFFIX: Final = ".arrow"
_NAME: Final = re.compile("[0-9a-f]{32}")
#: Seconds for which a file that nothing names is left alone: its writer may be about to name it. No lease is longer.
_GRACE: Final = 3_600.0


@dataclass(frozen=True, slots=True)
class BaseFiles:
    """The base files among the state files."""

    files: StateFiles

    def read(self, name: str) -> pa.Table | None:
        """A file, mapped into memory: a column that is not looked at takes none. None if it is lost or damaged: Arrow
        itself does not look, and takes wrong bytes for values, or crashes on them. Raises `Transient` during an outage.
        """
        import pyarrow as pa

        try:
            with self.files.whole(f"{name}{_SUFFIX}") as file:
                _demand(file, name)
                with pa.memory_map(str(file)) as mapped:
                    return pa.ipc.open_file(mapped).read_all()
        except FileNotFoundError:
            harm = "lost"
        except (OSError, pa.ArrowInvalid):
            harm = "damaged"
        logging.getLogger("instep").warning(
            "%s: the base file %s is %s; the ledger has what was in it, and it is written anew after the next job",
            *(self.files.where, name, harm),
        )
        return None

    def write(self, table: pa.Table) -> str:
        """Write a file, and return its name, which only the same bytes have. It is whole, or not there."""
        import pyarrow as pa

        with self.files.staged(uuid.uuid4().hex) as staged:
            with pa.ipc.new_file(staged.file, table.schema) as writer:  # type: ignore[arg-type]  # any file will do
                writer.write_table(table)
            staged.file.flush()
            name = _digest(staged.path)
            staged.name = f"{name}{_SUFFIX}"
        return name

    def remove_all_but(self, names: Collection[str]) -> None:
        """Remove files that are not named, unless a process may be writing them. Their age is by their own clock: that
        of the one that was written last.
        """
        with suppress(OSError, InstepError):
            there = self.files.written()
            newest = max(there.values(), default=0.0)
            for name, at in there.items():
                stem = PurePath(name).stem
                if _NAME.fullmatch(stem) and stem not in names and newest - at > _GRACE:
                    self.files.remove(name)


def _demand(file: Path, name: str) -> None:
    if _digest(file) != name:
        raise OSError("not the bytes that were written")


def _digest(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, partial(hashlib.blake2b, digest_size=16)).hexdigest()
