"""Walking and reading local files. Paths are bytes: names need not be valid text."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from typing import IO

from instep.domain.identity import plain, quoted
from instep.domain.manifest import SourceDocument
from instep.sources.document_source import NOT_THERE, Content, Looked, TooLarge, Unread, Unseen, Vanished
from instep.sources.globs import Globs

#: A file that changes while it is read is read again this often in all.
READS = 3
_BUFFER = 1 << 20
#: Nanoseconds between two time stamps that differ: by the system's clock; and where they have no more than whole
#: milliseconds, as if they were counted in steps of two seconds.
_TICK, _COARSE = 20_000_000, 2_000_000_000
#: To which nothing is there, or only the link itself again.
_NOWHERE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP})
_BROUGHT_BACK = "bring back what it leads to, or remove it"
_GONE = frozenset({errno.ENOENT, errno.ENOTDIR, errno.EISDIR})


def walk(
    root: bytes,
    base: str,
    include: Globs,
    exclude: Globs,
    problem: Callable[[str], None],
    *,
    nowhere: Callable[[str, Unseen], None],
) -> Iterator[SourceDocument]:
    """Regular files under a directory that goes by the URI `base`, in no order. Links are followed, but not to a folder
    that the link is in itself, and not to one that is listed already: each is listed once, under its own name if that
    is below the root. `nowhere` is told of links that lead to nothing.
    """
    folders, links = [root], list[bytes]()
    seen: set[tuple[int, int]] = set()
    prefix = len(root.rstrip(b"/")) + 1
    # Asked of each file: of no patterns nothing is.
    wanted, unwanted = include.matches if include else None, exclude.matches if exclude else None
    # A pattern that takes back may do so deep inside a directory that another one leaves out.
    prunes = None if exclude.negated else unwanted
    if exclude.of_folders:
        unwanted = None  # No file is met in a folder that is left out.
    while folders or links:
        # In an order, so that the same tree is always listed by the same names.
        folder = folders.pop() if folders else heappop(links)
        within = folder if folder.endswith(b"/") else folder + b"/"
        under, uri = os.fsdecode(within[prefix:]), base + quoted(within[len(root) :])
        try:
            itself = os.stat(folder)  # noqa: PTH116 - the path is bytes
            if (itself.st_dev, itself.st_ino) in seen:
                continue
            seen.add((itself.st_dev, itself.st_ino))
            with os.scandir(os.fsdecode(folder)) as entries:
                for entry in entries:
                    name = entry.name
                    relative = under + name
                    if entry.is_dir(follow_symlinks=False):
                        if not (prunes and prunes(relative + "/")):
                            folders.append(os.fsencode(entry.path))
                        continue
                    is_link = entry.is_symlink()
                    if is_link and _leads_to_folder(entry, problem):
                        if not (prunes and prunes(relative + "/")) and not _is_loop(entry.path):
                            heappush(links, os.fsencode(entry.path))
                        continue
                    if is_link and _is_broken_link(entry):
                        if not (unwanted and unwanted(relative)) and not (prunes and prunes(relative + "/")):
                            what = f"{shown(os.fsencode(entry.path))}: a broken link"
                            nowhere(uri + quoted(os.fsencode(name)), Unseen(what, _BROUGHT_BACK))
                        continue
                    left_out = (wanted and not wanted(relative)) or (unwanted and unwanted(relative))
                    status = None if left_out else _status(entry, problem)
                    if status is not None:
                        in_uri = name if plain(name) else quoted(os.fsencode(name))
                        yield SourceDocument(uri + in_uri, status.st_size, version(status))
        except OSError as error:
            problem(f"{shown(folder)}: {reason(error)}")


def _leads_to_folder(entry: os.DirEntry[str], problem: Callable[[str], None]) -> bool:
    status = _status(entry, problem, of=stat.S_ISDIR)
    return status is not None


def _is_broken_link(link: os.DirEntry[str]) -> bool:
    try:
        link.stat()
    except OSError as error:
        return error.errno in _NOWHERE
    return False


def _is_loop(link: str) -> bool:
    """Whether a link leads to a folder that it is in."""
    target, folder = os.path.realpath(link), os.path.realpath(os.path.dirname(link))  # noqa: PTH120 - it may be no text
    return os.path.commonpath([target, folder]) == target


def _status(
    entry: os.DirEntry[str], problem: Callable[[str], None], of: Callable[[int], bool] = stat.S_ISREG
) -> os.stat_result | None:
    """The status of a regular file (or another kind); None for other entries."""
    try:
        status = entry.stat()
    except OSError as error:
        # Gone since, or a link: there is no such file.
        if error.errno not in _NOWHERE:
            problem(f"{shown(os.fsencode(entry.path))}: {reason(error)}")
        return None
    return status if of(status.st_mode) else None


def is_empty_folder(path: bytes) -> bool:
    """Whether nothing is in it. What cannot be listed is not taken for that."""
    try:
        with os.scandir(path) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def is_below(path: bytes, folder: bytes) -> bool:
    """Whether a path is in a folder, by its name."""
    return path.startswith(folder.rstrip(b"/") + b"/")


def look(path: bytes, root: bytes, base: str, include: Globs, exclude: Globs) -> Looked | None:
    """Look at one path below a root that goes by the URI `base`. None for a folder, a link or what is no file: only a
    listing tells what they mean.
    """
    relative, uri = os.fsdecode(path[len(root.rstrip(b"/")) + 1 :]), base + quoted(path[len(root) :])
    if exclude.leave_out(relative):
        return NOT_THERE
    try:
        status = _unfollowed(path, root)
    except OSError as error:
        return Looked([], [uri]) if error.errno in _NOWHERE else None
    if stat.S_ISDIR(status.st_mode) and exclude.matches(f"{relative}/"):
        return NOT_THERE
    if not stat.S_ISREG(status.st_mode):
        return None
    return NOT_THERE if include and not include.matches(relative) else Looked([document(uri, status)], [])


def _unfollowed(path: bytes, root: bytes) -> os.stat_result:
    """The status of what is at a path below a folder; of the first link on the way, if there is one."""
    place = root.rstrip(b"/")
    for step in path[len(place) + 1 :].split(b"/"):
        place += b"/" + step
        status = os.lstat(place)
        if stat.S_ISLNK(status.st_mode):
            break
    return status


def document(name: str, status: os.stat_result) -> SourceDocument:
    return SourceDocument(name, status.st_size, version(status))


def version(status: os.stat_result) -> str:
    """The version of a file: when it was written, and when the system last changed anything of it, which cannot be set
    back, as `cp -p`, `tar` and `rsync -t` set back the former.
    """
    return f"{status.st_mtime_ns}.{status.st_ctime_ns}"


def identity(status: os.stat_result) -> str:
    """The version of a file or folder, and what tells it from another one that was written in the same moment."""
    return f"{version(status)}.{status.st_ino}.{status.st_size}"


def settled_identity(path: bytes) -> str:
    """The identity of a regular file, once no change that is still to come leaves it the same. Raises `Vanished` or
    `Unread`.
    """
    with _descriptor(path) as descriptor:
        return identity(_grown_up(descriptor))


def read(path: bytes, *, max_bytes: int) -> Content:
    """Read a regular file as it was at one moment. Raises `Vanished` or `Unread`."""
    with _descriptor(path) as descriptor:
        for _ in range(READS):
            before = _grown_up(descriptor)
            check_size(before.st_size, max_bytes)
            data = _read_all(descriptor, 0, before.st_size + 1)
            if len(data) == before.st_size and _same(before, os.fstat(descriptor)):
                return Content(data, before.st_size, version(before), modified=_modified(before))
    raise Unread("changes while it is being read")


def _modified(status: os.stat_result) -> datetime | None:
    """None for a moment that no calendar has."""
    try:
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=status.st_mtime_ns // 1_000)
    except OverflowError:
        return None


def _grown_up(descriptor: int) -> os.stat_result:
    """A file's state, when no change that is still to come can have the same time stamps: some file systems count in
    seconds, all others in ticks of the system's clock. (Git reads such "racy" files again.)
    """
    found = os.fstat(descriptor)
    grain = _TICK if found.st_ctime_ns % 1_000_000 else _COARSE
    age = time.time_ns() - found.st_ctime_ns
    if 0 <= age < grain:
        time.sleep((grain - age) / 1e9)
        found = os.fstat(descriptor)
    return found


def part(path: bytes, start: int, length: int) -> bytes:
    """Read some bytes of a regular file, fewer if it ends before. Raises `Vanished` or `Unread`."""
    with _descriptor(path) as descriptor:
        return _read_all(descriptor, start, length)


def opened(path: bytes) -> IO[bytes]:
    """A regular file from its start. Raises `Vanished` or `Unread`."""
    with _descriptor(path) as descriptor:
        return os.fdopen(os.dup(descriptor), "rb", _BUFFER)


@contextmanager
def _descriptor(path: bytes) -> Iterator[int]:
    """Open a regular file. Raises `Vanished` or `Unread`, also in place of an error while it is used."""
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
        raise Unread(reason(error)) from None


def _read_all(descriptor: int, start: int, limit: int) -> bytes:
    """Read to the end or `limit` bytes; one call to the system returns 2 GiB at most."""
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
    """The reason of an error, without the path, which the caller knows."""
    return (error.strerror or type(error).__name__).lower()


def shown(path: bytes) -> str:
    """A path for people: what is not text is shown as an escape."""
    return path.decode("utf-8", "backslashreplace")
