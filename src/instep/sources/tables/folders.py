"""Files of a table, as they are listed without Spark."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from instep.errors import UserError
from instep.sources import local_files
from instep.sources.document_source import Unread, Vanished
from instep.sources.url_files import content_version, file_version, files_below, is_url

#: What Spark takes for a pattern in a path.
_PATTERN = re.compile(r"[*?{}\[\]\\]")

#: Where these keep what belongs to the table at a moment; what else lies there comes and goes.
_LOGS = {"delta": "_delta_log", "iceberg": "metadata", "hudi": ".hoodie"}


#: When a file was written, as stores say it.
_MOMENTS = ("LastModified", "last_modified", "mtime", "modified", "updated")


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
    def is_local(self) -> bool:
        return "local" in self.fs.protocol

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


def digest_of_writes(paths: Sequence[str], format: str) -> str | None:
    """As `digest`, and differs too when a file was written again as it had been before, or was put in place of another:
    no earlier state comes back. None where only Spark can look, as with access to a store that it alone has, a file has
    gone since, or a store does not tell.
    """
    state = hashlib.sha256()
    unlisted: list[str] = []
    for path in paths:
        found = None if _PATTERN.search(path) else _listing(path, format, lambda folder, _: unlisted.append(folder))
        if found is None or unlisted:
            return None
        files = sorted(found.files, key=lambda file: file[0])
        written = _on_this_machine(found.root, files) if "local" in found.fs.protocol else _in_a_store(files)
        if written is None:
            return None
        for each in (f"{found.root}\0{len(files)}", *written):
            state.update(f"{each}\0".encode(errors="surrogateescape"))
    return state.hexdigest()[:32]


def _on_this_machine(root: str, files: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str] | None:
    """Facts that differ when one of these files was written, or a folder or a link was moved by which they are found:
    then others may have been there for some time, and their rows are indexed.
    """
    on_the_way = (os.fspath(each) for each in (PurePath(root), *PurePath(root).parents))
    ways = {each for each in on_the_way if each == root or os.path.islink(each)}  # noqa: PTH114 - may be no text
    for path, _ in files:
        folder = path.rpartition("/")[0]
        while len(folder) > len(root) and folder not in ways:
            ways.add(folder)
            folder = folder.rpartition("/")[0]
    try:
        found = [f"{each}\0{local_files.identity(os.lstat(each))}" for each in sorted(ways)]
        return found + [f"{path}\0{local_files.settled_identity(os.fsencode(path))}" for path, _ in files]
    except (OSError, Vanished, Unread):
        return None


def _in_a_store(files: Sequence[tuple[str, Mapping[str, Any]]]) -> list[str] | None:
    """Facts of a store about these files that differ when one was written; None if it has no more than times."""
    found = []
    for path, info in files:
        if (content := content_version(info)) is None:
            return None
        moments = (str(info[each]) for each in _MOMENTS if info.get(each))
        found.append("\0".join((path, str(info.get("size")), content, *moments)))
    return found


def shown(path: str) -> str:
    """A path for people: of a URL, without user, query and fragment."""
    if not is_url(path):
        return path
    parts = urlsplit(path)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _folder(path: str, format: str) -> Folder | None:
    if _PATTERN.search(path):
        return None
    if (found := _listing(path, format, _refuse)) is None:
        return None
    try:
        listed = [
            Listed(each, int(info.get("size") or 0), file_version(found.fs, each, info)) for each, info in found.files
        ]
    except (OSError, ValueError):
        return None
    return Folder(found.root, found.fs, tuple(sorted(listed)))


class _Listing(NamedTuple):
    """The files of a place that are not hidden, with what its file system says of each."""

    root: str
    fs: Any
    files: list[tuple[str, Mapping[str, Any]]]


def _listing(path: str, format: str, problem: Callable[[str, str], None]) -> _Listing | None:
    """None for a place that no file system here opens. `problem`: see `files_below`. Raises `UserError` when there is
    nothing at a local path.
    """
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(path)
        fs.invalidate_cache()
        if not is_url(path) and not fs.exists(root):
            raise UserError(f"there is nothing at {shown(path)}", hint="Check the path of the source.")
        log = _LOGS.get(format)
        beneath = f"{root.rstrip('/')}/{log}" if log else root
        listing = [(beneath, fs.info(beneath))] if fs.isfile(beneath) else files_below(fs, beneath, problem)
        files = [(each, info) for each, info in listing if log or not _hidden(each[len(root) :])]
    except (OSError, ValueError, ImportError):
        return None
    return _Listing(str(root), fs, files)


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
