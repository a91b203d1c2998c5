"""State files: what is kept beside a ledger, in a folder or at the URL of an object store that all servers reach.

The ledger names the files that count. One is there as a whole, and durable, before it has its name, and is never
written again. Those at a URL are below the id of their ledger: no ledger reads, lists or removes those of another.

A file that is not there raises `FileNotFoundError`. A store that does not answer, or refuses us, is an outage
(`Transient`): it says nothing about what is in it.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from instep.errors import InstepError, Transient, UserError

_LOCAL = "file://"


class StateFiles(ABC):
    """The files of one ledger."""

    #: The folder or URL, fit to be shown.
    where: str
    #: The folder that they are in, if it is one: what is in it can be mapped by others on this machine.
    folder: Path | None = None

    @property
    @abstractmethod
    def at_hand(self) -> bool:
        """Whether a look at them costs next to nothing: no library to load, no server to find."""

    @abstractmethod
    def staged(self, torn: str) -> AbstractContextManager[Staged]:
        """A file to be written. `torn`: its name until it has one, where that can be seen."""

    @abstractmethod
    def whole(self, name: str) -> AbstractContextManager[Path]:
        """A file that can be mapped into memory; what is mapped stays readable. An error means that it has changed."""

    @abstractmethod
    def part(self, name: str, at: int, length: int) -> bytes:
        """Some bytes of a file: less than `length` at its end."""

    @abstractmethod
    def written(self) -> Mapping[str, float]:
        """The names of all files, and when they were written: in seconds, by the clock that the files have."""

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""

    def probe(self) -> str:
        """Write a file, read, list and remove it; the answer says so. Raises `InstepError` for what cannot be done."""
        name, data = f"check.{uuid.uuid4().hex}", os.urandom(16)
        try:
            with self.staged(name) as staged:
                staged.file.write(data)
                staged.name = name
            read, listed = self.part(name, 0, len(data)), name in self.written()
        except OSError as error:
            raise UserError(f"files cannot be written, read and listed there: {_reason(error)}") from error
        finally:
            with suppress(OSError, InstepError):
                self.remove(name)
        if read != data or not listed:
            what = "read as it was written" if read != data else "listed"
            raise UserError(f"a file that was just written cannot be {what}")
        if name in self.written():
            raise UserError("a file that was removed is still listed there")
        return f"{self.where} can be written, read, listed and removed from"


class Staged:
    """A file that is being written. Without a name at the end it is dropped."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.name: str | None = None

    @property
    def path(self) -> Path:
        """The path under which it can be read before it has its name."""
        return Path(f"/dev/fd/{self.file.fileno()}")

    def sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())


class FolderFiles(StateFiles):
    """Files in a folder. `shared`: one below a folder that has to be there, because it is mounted."""

    def __init__(self, folder: Path, *, shared: bool = False) -> None:
        self.where = str(folder)
        self.folder = folder
        self._folder = folder
        self._shared = shared

    @property
    def at_hand(self) -> bool:
        return True

    @contextmanager
    def staged(self, torn: str) -> Iterator[Staged]:
        self._demand_mounted()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / torn
        try:
            with path.open("w+b") as file:
                yield (made := Staged(file))
                made.sync()
            if made.name is None:
                path.unlink()
            else:
                path.rename(self._folder / made.name)
                _settle_names(self._folder)
        except BaseException:
            with suppress(OSError):
                path.unlink()
            raise

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        self._demand_mounted()
        yield self._folder / name

    def part(self, name: str, at: int, length: int) -> bytes:
        self._demand_mounted()
        with (self._folder / name).open("rb") as file:
            file.seek(at)
            return file.read(length)

    def written(self) -> Mapping[str, float]:
        self._demand_mounted()
        found: dict[str, float] = {}
        for each in self._folder.iterdir() if self._folder.is_dir() else ():
            with suppress(FileNotFoundError):  # Another process has just removed it.
                found[each.name] = each.stat().st_mtime
        return found

    def remove(self, name: str) -> None:
        (self._folder / name).unlink(missing_ok=True)

    def probe(self) -> str:
        try:
            return super().probe()
        finally:
            with suppress(OSError):  # It has files, or is no folder.
                self._folder.rmdir()

    def _demand_mounted(self) -> None:
        """Raises `Transient` where the whole folder is missing: what is in it is not lost."""
        if self._shared and not self._folder.parent.is_dir():
            raise Transient(f"the state files cannot be reached: there is no folder {self._folder.parent}")


class StoreFiles(StateFiles):
    """Files at an fsspec URL. Credentials come from the environment, or from fsspec's own configuration."""

    def __init__(self, url: str) -> None:
        self.where = url
        self._opened: tuple[Any, str] | None = None
        #: The file that was last read as a whole: a run looks at the same one several times.
        self._last: tuple[str, _Copy] | None = None

    @property
    def at_hand(self) -> bool:
        return self._opened is not None

    @contextmanager
    def staged(self, torn: str) -> Iterator[Staged]:
        # Without a name: nothing of it stays when this process dies.
        with tempfile.TemporaryFile(prefix=torn) as file:
            yield (made := Staged(file))
            file.flush()
            if made.name is not None:
                file.seek(0)
                with self._answering() as (fs, root):
                    # An object is there when all of it is.
                    fs.put_file(str(made.path), f"{root}/{made.name}")

    @contextmanager
    def whole(self, name: str) -> Iterator[Path]:
        last = self._last
        if last is None or last[0] != name:
            copy = _Copy()
            with self._answering() as (fs, root):
                fs.get_file(f"{root}/{name}", str(copy.path))
            last = name, copy
        yield last[1].path
        self._last = last  # It was as it should be.

    def part(self, name: str, at: int, length: int) -> bytes:
        with self._answering() as (fs, root):
            path = f"{root}/{name}"
            try:
                found: bytes = fs.cat_file(path, start=at, end=at + length)
            except OSError:  # Some stores refuse a range that begins behind the end.
                fs.invalidate_cache()
                if fs.info(path)["size"] > at:
                    raise
                return b""
            return found

    def written(self) -> Mapping[str, float]:
        with self._answering() as (fs, root):
            fs.invalidate_cache()
            try:
                listed = fs.ls(root, detail=True)
            except FileNotFoundError:
                return {}  # Stores have no empty folders.
            files = [each for each in listed if each.get("type") == "file"]
            return {each["name"].rpartition("/")[2]: _time_of(fs, each) for each in files}

    def remove(self, name: str) -> None:
        with suppress(FileNotFoundError), self._answering() as (fs, root):
            fs.rm_file(f"{root}/{name}")

    @contextmanager
    def _answering(self) -> Iterator[tuple[Any, str]]:
        try:
            if self._opened is None:
                self._opened = _open(self.where)
            yield self._opened
        except (FileNotFoundError, InstepError):
            raise
        except Exception as error:  # Each store has errors of its own. They may repeat what they were asked with.
            raise Transient(f"the state files at {self.where} cannot be reached: {_reason(error)}") from None


class _Copy:
    """A file on this disk without a name: it is there for as long as anybody looks at it."""

    def __init__(self) -> None:
        self._descriptor, name = tempfile.mkstemp()
        Path(name).unlink()
        self.path = Path(f"/dev/fd/{self._descriptor}")

    def __del__(self) -> None:
        os.close(self._descriptor)


def state_files(url: str, ledger: str) -> StateFiles:
    """The state files at a URL of the ledger with this id."""
    if url.startswith(_LOCAL):
        return FolderFiles(Path(unquote(urlsplit(url).path)) / ledger, shared=True)
    return StoreFiles(f"{url.rstrip('/')}/{ledger}")


def _open(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        fs, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
        scheme = url.partition("://")[0]
        hint = "pip install 'instep[s3]'" if scheme in ("s3", "s3a") else str(error)
        raise UserError(
            f"the library for {scheme}:// is not installed", where=f"state {url}", hint=f"Install it: {hint}"
        ) from None
    return fs, str(root).rstrip("/")


def _time_of(fs: Any, listed: Mapping[str, Any]) -> float:
    times = (listed.get(key) for key in ("LastModified", "last_modified", "mtime", "updated", "created"))
    found = next((each for each in times if isinstance(each, datetime)), None)
    return float((found or fs.modified(listed["name"])).timestamp())


def _settle_names(folder: Path) -> None:
    """Make the names in a folder durable."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _reason(error: Exception) -> str:
    """The kind of error, and what a system said; not its text, which may hold a signed address."""
    said = getattr(error, "strerror", None)
    return said or type(error).__name__
