"""Keep the texts of parsed PDFs and office documents, by content and parser: another chunk size parses none again."""

from __future__ import annotations

import logging
import os
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final

_log = logging.getLogger(__name__)

#: Seconds after which a text that was not asked for is removed.
KEEP: Final = 30 * 24 * 3600
#: What was asked for in the last day is not marked again.
_DAY: Final = 24 * 3600
_ENDING: Final = ".z"
_PARTIAL: Final = ".part"


@dataclass(frozen=True)
class ParseCache:
    """Keeps parsed texts in files below `folder`, in the project's state, one for each text. Losing it costs time,
    never correctness: nothing here raises, and what cannot be read is not there. Only the user who runs Instep may read
    them.
    """

    folder: str

    def get(self, fingerprint: str, key: str) -> bytes | None:
        """The text that the parser of this fingerprint has made of what the key stands for."""
        path = self._path(fingerprint, key)
        try:
            found = zlib.decompress(path.read_bytes())
            if time.time() - path.stat().st_mtime > _DAY:
                os.utime(path)
        except (OSError, zlib.error):
            return None
        return found

    def put(self, fingerprint: str, key: str, text: bytes) -> None:
        """Keep it. A place that cannot be written is no error."""
        if not Path(self.folder).parent.is_dir():
            return  # An executor on a host without the project's state.
        path = self._path(fingerprint, key)
        partial = None
        try:
            _tidied(self.folder)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Another thread may write the same. Only its user may read it.
            with NamedTemporaryFile(dir=path.parent, prefix=key, suffix=_PARTIAL, delete=False) as file:
                partial = Path(file.name)
                file.write(zlib.compress(text, 1))
            partial.replace(path)
        except OSError as error:
            _warned(self.folder, error.strerror)
            with suppress(OSError):
                if partial is not None:
                    partial.unlink(missing_ok=True)

    def _path(self, fingerprint: str, key: str) -> Path:
        return Path(self.folder, fingerprint, key[:2], key + _ENDING)


@cache
def _warned(folder: str, reason: str | None) -> None:
    """Say it once in each process."""
    _log.warning("parsed texts are not kept in %s, and are parsed again when they are needed: %s", folder, reason)


@cache
def _tidied(folder: str) -> None:
    """Remove what was not asked for in a long time, once in each process."""
    oldest = time.time() - KEEP
    for path in Path(folder).glob("*/*/*"):
        with suppress(OSError):  # Another process may do the same.
            if path.stat().st_mtime < oldest:
                path.unlink()
