"""Walking and reading local files. Paths are bytes: names need not be valid text."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from instep.domain.identity import file_uri, plain, quoted
from instep.domain.manifest import SourceDocument
from instep.sources.patterns import Globs
from instep.sources.port import Content, TooLarge, Unreadable, Vanished

#: A file that changes while it is read is read again this often in all.
READS = 3
_BUFFER = 1 << 20
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})


def walk(root: bytes, include: Globs, exclude: Globs, problem: Callable[[str], None]) -> Iterator[SourceDocument]:
    """Regular files under a directory, in no order. Links to files are followed, links to directories are not."""
    folders = [root]
    prefix = len(root.rstrip(b"/")) + 1
    # Asked of each file: of no patterns nothing is.
    wanted, unwanted = include.matches if include else None, exclude.matches if exclude else None
    # A pattern that takes back may do so deep inside a directory that another one leaves out.
    prunes = None if exclude.negated else unwanted
    if exclude.of_folders:
        unwanted = None  # No file is met in a folder that is left out.
    while folders:
        folder = folders.pop()
        within = folder if folder.endswith(b"/") else folder + b"/"
        under, uri = os.fsdecode(within[prefix:]), file_uri(within)
        try:
            with os.scandir(os.fsdecode(folder)) as entries:
                for entry in entries:
                    name = entry.name
                    relative = under + name
                    if entry.is_dir(follow_symlinks=False):
                        if not (prunes and prunes(relative + "/")):
                            folders.append(os.fsencode(entry.path))
                        continue
                    if (wanted and not wanted(relative)) or (unwanted and unwanted(relative)):
                        continue
                    status = _status(entry, problem)
                    if status is not None:
                        in_uri = name if plain(name) else quoted(os.fsencode(name))
                        yield SourceDocument(uri + in_uri, status.st_size, str(status.st_mtime_ns))
        except OSError as error:
            problem(f"{shown(folder)}: {reason(error)}")


def _status(entry: os.DirEntry[str], problem: Callable[[str], None]) -> os.stat_result | None:
    """Of a regular file; None for what is none."""
    try:
        status = entry.stat()
    except OSError as error:
        # Gone since, or a link that leads nowhere or round in a circle: there is no such file.
        if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            problem(f"{shown(os.fsencode(entry.path))}: {reason(error)}")
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def document(path: bytes, status: os.stat_result) -> SourceDocument:
    return SourceDocument(file_uri(path), status.st_size, str(status.st_mtime_ns))


def read(path: bytes, *, max_bytes: int) -> Content:
    """All bytes of a regular file as they were at one moment. Raises `Vanished` or `Unreadable`."""
    with _descriptor(path) as descriptor:
        for _ in range(READS):
            before = os.fstat(descriptor)
            check_size(before.st_size, max_bytes)
            data = _read_all(descriptor, 0, before.st_size + 1)
            if len(data) == before.st_size and _same(before, os.fstat(descriptor)):
                return Content(data, before.st_size, str(before.st_mtime_ns))
    raise Unreadable("changes while it is being read")


def part(path: bytes, start: int, length: int) -> bytes:
    """Some bytes of a regular file, fewer if it ends before. Raises `Vanished` or `Unreadable`."""
    with _descriptor(path) as descriptor:
        return _read_all(descriptor, start, length)


def opened(path: bytes) -> IO[bytes]:
    """A regular file from its start. Raises `Vanished` or `Unreadable`."""
    with _descriptor(path) as descriptor:
        return os.fdopen(os.dup(descriptor), "rb", _BUFFER)


@contextmanager
def _descriptor(path: bytes) -> Iterator[int]:
    """Of a regular file. Raises `Vanished` or `Unreadable`, also in place of an error while it is used."""
    try:
        # Never wait for the writer of a pipe that took the file's place.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise Vanished
            yield descriptor
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _GONE:
            raise Vanished from None
        raise Unreadable(reason(error)) from None


def _read_all(descriptor: int, start: int, limit: int) -> bytes:
    """To the end or `limit` bytes; one call to the system returns 2 GiB at most."""
    data = os.pread(descriptor, limit, start)
    while len(data) < limit:
        more = os.pread(descriptor, limit - len(data), start + len(data))
        if not more:
            break
        data += more
    return data


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_size, one.st_mtime_ns, one.st_ctime_ns) == (other.st_size, other.st_mtime_ns, other.st_ctime_ns)


def check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise TooLarge(size)


def reason(error: OSError) -> str:
    """Why, without the path, which the caller knows."""
    return (error.strerror or type(error).__name__).lower()


def shown(path: bytes) -> str:
    """A path for people: what is not text is shown as an escape."""
    return path.decode("utf-8", "backslashreplace")
