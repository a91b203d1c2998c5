"""Files of a table, as they are listed without Spark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from instep.errors import UserError
from instep.sources.url_files import file_version, files_below, is_url

#: What Spark takes for a pattern in a path.
_PATTERN = re.compile(r"[*?{}\[\]\\]")

#: Where these keep what belongs to the table at a moment; what else lies there comes and goes.
_LOGS = {"delta": "_delta_log", "iceberg": "metadata", "hudi": ".hoodie"}


class Listed(NamedTuple):
    """A file, in one version of it."""

    path: str
    size: int
    version: str


@dataclass(frozen=True, slots=True)
class Folder:
    """One place that a table is read from; `files` in the order in which Spark takes them."""

    root: str
    fs: Any
    files: tuple[Listed, ...]

    @property
    def plain(self) -> bool:
        """Whether no column's values are in the names of folders."""
        return not any("=" in each.path[len(self.root) :].rpartition("/")[0] for each in self.files)

    @property
    def flat(self) -> bool:
        """Whether all files lie in the place itself, or in folders of columns' values."""
        below = (each.path[len(self.root) :].strip("/").split("/")[:-1] for each in self.files)
        return all("=" in part for parts in below for part in parts)

    def named(self, given: str, file: Listed) -> str | None:
        """The file's name for Spark, which knows the place by the given one; None if it would take it for a pattern."""
        path = f"{given.rstrip('/')}{file.path[len(self.root.rstrip('/')) :]}" if is_url(given) else file.path
        return None if _PATTERN.search(path) or not file.path.startswith(self.root.rstrip("/")) else path


def folders(paths: Sequence[str], format: str) -> list[Folder] | None:
    """None where only Spark can look: for patterns, and places that no file system here opens.

    Raises `UserError` when there is nothing at a local path.
    """
    found = [_folder(path, format) for path in paths]
    known = [each for each in found if each is not None]
    return known if known and len(known) == len(found) else None


def digest(found: Sequence[Folder]) -> str:
    """Differs when a file has come, gone or changed."""
    state = hashlib.sha256()
    for folder in found:
        for each in folder.files:
            state.update(f"{each.path}\0{each.size}\0{each.version}\0".encode(errors="surrogateescape"))
    return state.hexdigest()[:32]


def shown(path: str) -> str:
    """A path for people: of a URL, without user, query and fragment."""
    if not is_url(path):
        return path
    parts = urlsplit(path)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _folder(path: str, format: str) -> Folder | None:
    if _PATTERN.search(path):
        return None
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(path)
        fs.invalidate_cache()
        if not is_url(path) and not fs.exists(root):
            raise UserError(f"there is nothing at {shown(path)}", hint="Check the path of the source.")
        log = _LOGS.get(format)
        beneath = f"{root.rstrip('/')}/{log}" if log else root
        listing = [(beneath, fs.info(beneath))] if fs.isfile(beneath) else files_below(fs, beneath, _refuse)
        listed = [
            Listed(each, int(info.get("size") or 0), file_version(fs, each, info))
            for each, info in listing
            if log or not _hidden(each[len(root) :])
        ]
    except (OSError, ValueError, ImportError):
        return None
    return Folder(str(root), fs, tuple(sorted(listed)))


def _refuse(folder: str, why: str) -> None:
    """Refuse a folder that could not be listed: its rows would pass for deleted."""
    raise UserError(
        f"{shown(folder)} cannot be listed: {why}",
        hint="Nothing of the table is changed until all of it can be. Run again.",
    )


def _hidden(relative: str) -> bool:
    """Whether Spark leaves a name out: it begins with `.`, or with `_` and is no folder of a column's value."""
    return any(
        part.startswith(".") or (part.startswith("_") and "=" not in part) or part.endswith("._COPYING_")
        for part in relative.split("/")
    )
