"""Location of the datasets: names, opening them, small files beside them, and errors made readable."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import tempfile
import uuid
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from instep.domain.texts import without
from instep.errors import Fenced, InstepError, Transient, UserError
from instep.targets.ownership import checked_name

_RUST_SOURCE = re.compile(r",? ?(/[^\s,:]+)?/rust/[^\s,]+\.rs:\d+(:\d+)?")
#: Ctrl-C, in what lance says of an error of Python that a callback raised.
_INTERRUPTED = re.compile(r"(^|: |\n)KeyboardInterrupt(:|\s|$)")
_MISSING = re.compile(r"was not found|Not found|No such file|Object at location .* not found")
#: A file of rows, by the names of its dataset and its own.
_ROWS = re.compile(r"([^/\s]+)\.lance/data/([^/\s,:]+\.lance)")
#: What file systems without hard links say.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
#: A file that was committed whole, and is not so any more.
_DAMAGED = re.compile(r"failed to fill whole buffer|does not appear to be a Lance file|[Cc]orrupt file")
_MEND = (
    "Restore them from a backup, or rebuild it: instep run --full-refresh. If the ledger that made it is lost, move its"
    " folder and its alias files away first."
)
_FULL = re.compile(r"No space left|Disk quota exceeded|StorageFull|File too large", re.IGNORECASE)
_REFUSED = re.compile(
    r"Permission denied|Read-only file system|PermissionDenied|AccessDenied|Access Denied|Forbidden|Unauthorized"
    r"|Unauthenticated|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|credential|NoSuchBucket|Not a directory",
    re.IGNORECASE,
)


def lance_library() -> Any:
    """The `lance` module, imported on first use (0.3 s).

    Its Rust logger writes warnings about ordinary things (an index being created) to stderr, where
    users of a command line would read them; `LANCE_LOG` set by the user wins.
    """
    os.environ.setdefault("LANCE_LOG", "error")
    # It warns at every fork, and starting any other program begins with one.
    warnings.filterwarnings("ignore", message="lance is not fork-safe", category=UserWarning)
    import lance

    return lance


def _absent(path: str) -> bool:
    """Whether there is no such folder, beyond doubt."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


class Preempted(Transient):
    """A concurrent commit won; look again and repeat."""


def is_missing(error: Exception) -> bool:
    """Whether lance says that a dataset, a version of it, or a file is not there."""
    return bool(_MISSING.search(str(error)))


@dataclass(frozen=True)
class Location:
    """A folder or a URL that lance can reach, with the options to reach it (never shown: secrets)."""

    uri: str
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def folder(self) -> Path | None:
        """The local folder; None for an object store."""
        return Path(self.uri) if "://" not in self.uri else None

    @property
    def shown(self) -> str:
        """The address without user, password and query."""
        if self.folder is not None:
            return self.uri
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"

    def dataset_uri(self, physical: str) -> str:
        return f"{self.uri}/{checked_name(physical)}.lance"

    def open(self, physical: str, version: int | None = None, session: Any = None) -> Any:
        """The dataset at a version (the newest by default); `UserError` when there is no dataset,
        `Fenced` when the version is gone.
        """
        lance = lance_library()
        with self.understood():
            try:
                return lance.dataset(
                    self.dataset_uri(physical),
                    version=version,
                    storage_options=dict(self.storage_options) or None,
                    session=session,
                )
            except ValueError as error:
                if is_missing(error):
                    raise self._absent(physical, version) from None
                raise

    def _absent(self, physical: str, version: int | None) -> InstepError:
        if version is None or not self.has(physical):
            return UserError(f"there is no index {physical!r}", where=self.shown, hint="Build it with: instep run")
        # Versions go only when a newer epoch is there.
        return Fenced(f"{physical}: version {version} was cleaned away; this work was taken over")

    def has(self, physical: str) -> bool:
        return self.find(physical) is not None

    def find(self, physical: str) -> Any:
        """The newest version of the dataset, or None when it is not there."""
        if self.folder is not None and _absent(self.dataset_uri(physical)):
            return None  # Without the library: a first plan needs it for nothing else.
        lance = lance_library()
        with self.understood():
            try:
                return lance.dataset(self.dataset_uri(physical), storage_options=dict(self.storage_options) or None)
            except ValueError as error:
                if is_missing(error):
                    return None
                raise

    def datasets(self, prefix: str) -> list[str]:
        """Names of the datasets that begin with `prefix`, sorted."""
        if self.folder is not None and not self.folder.is_dir():
            return []
        with self.understood():
            if self.folder is not None:  # Without the library: a run that finds nothing asks this, and needs it not.
                folders = [each.name for each in self.folder.iterdir() if each.is_dir()]
            else:
                found = self._files().list_with_delimiter().common_prefixes
                folders = [each.rstrip("/").rpartition("/")[2] for each in found]
        return sorted(
            each.removesuffix(".lance") for each in folders if each.startswith(prefix) and each.endswith(".lance")
        )

    def idle(self, dataset: str) -> float:
        """Seconds since its newest version was made."""
        found = self.open(dataset)
        with self.understood():
            written: datetime = found.versions()[-1]["timestamp"]
        return (datetime.now(UTC) - written.astimezone(UTC)).total_seconds()

    def files(self) -> list[str]:
        """Names of the small files."""
        with self.understood():
            if self.folder is not None:
                try:
                    return [each.name for each in self.folder.iterdir()]
                except FileNotFoundError:
                    return []
            return [each.rpartition("/")[2] for each in self._files().list_with_delimiter().objects]

    def read(self, name: str) -> bytes | None:
        """Content of a small file, or None when it is not there."""
        with self.understood():
            if self.folder is not None:
                try:
                    return (self.folder / name).read_bytes()
                except FileNotFoundError:
                    return None
            with tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch) / "copy"
                try:
                    self._files().download_file(name, str(copy))
                except OSError as error:
                    if is_missing(error):
                        return None
                    raise
                return copy.read_bytes()

    def create(self, name: str, content: bytes) -> bool:
        """Make a small file in one step; False, and no change, if it is there already.

        An object store is asked first, then told: of two at the same moment the later one wins, and both are
        told that they made it.
        """
        with self.understood():
            if self.folder is not None:
                return _create(self.folder / name, content)
            files = self._files()
            if files.contains(name):
                return False
            with tempfile.TemporaryDirectory() as scratch:
                copy = Path(scratch) / "copy"
                copy.write_bytes(content)
                files.upload_file(str(copy), name)
            return True

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        with self.understood():
            if self.folder is not None:
                (self.folder / name).unlink(missing_ok=True)
                return
            files = self._files()
            try:
                files.delete_file(name)
            except OSError as error:
                # Some stores answer in a way of their own to what they have done.
                if not is_missing(error) and files.contains(name):
                    raise

    def _files(self) -> Any:
        lance_library()
        from lance.file import LanceFileSession

        return LanceFileSession(self.uri, storage_options=dict(self.storage_options) or None)

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Turns what lance raises into the errors of Instep; and Ctrl-C into what it was."""
        try:
            yield
        except InstepError:
            raise
        except (OSError, ValueError, RuntimeError) as error:
            if _INTERRUPTED.search(str(error)):
                raise KeyboardInterrupt from None
            # Not chained: the original may repeat storage options.
            raise self._explained(error) from None

    def _explained(self, error: Exception) -> InstepError:
        text = self.without_secrets(str(error))
        # Not every conflict comes as a CommitConflictError: that of a compaction does not.
        if type(error).__name__ == "CommitConflictError" or "commit conflict" in text:
            return Preempted(f"{self.shown}: {text}")
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) or _FULL.search(text):
            hint = "Free some space, or raise the limit of space or of the size of files, then run again."
            return UserError("no space left for the index", where=self.shown, hint=hint)
        refused = isinstance(error, PermissionError | NotADirectoryError | FileExistsError) or _REFUSED.search(text)
        if refused:
            return UserError(
                f"the index cannot be reached or written: {text}",
                where=self.shown,
                hint="Check the target's uri, its permissions and storage_options.",
            )
        if _DAMAGED.search(text):
            return UserError(f"files of the index are damaged: {text}", where=self.shown, hint=_MEND)
        gone = _MISSING.search(text)
        if (isinstance(error, OSError) or "LanceError(IO)" in text) and not (gone and self._lacks(text)):
            return Transient(f"{self.shown}: {text}")
        what = "files of the index are gone" if gone else "lance refused"
        return UserError(f"{what}: {text}", where=self.shown, hint=_MEND if gone else None)

    def _lacks(self, text: str) -> bool:
        """Whether the missing file that an error names has rows of a dataset's newest version: those of older ones are
        cleaned away, also under who still reads them.
        """
        if (named := _ROWS.search(text)) is None:
            return False
        with contextlib.suppress(InstepError):
            fragments = self.open(named[1]).get_fragments()
            return any(each.path == named[2] for fragment in fragments for each in fragment.data_files())
        return False

    def without_secrets(self, text: str) -> str:
        text = without(text, *self.storage_options.values())
        return _RUST_SOURCE.sub("", text.replace(self.uri, self.shown))


def location_of(uri: str, storage_options: Mapping[str, str] | None = None) -> Location:
    """The place of an address: `file://` URLs and relative paths become absolute paths."""
    if uri.startswith("file://"):
        uri = unquote(urlsplit(uri).path)
    if "://" not in uri:
        uri = str(Path(uri).expanduser().absolute())
    return Location(uri.rstrip("/") or "/", dict(storage_options or {}))


def _create(path: Path, content: bytes) -> bool:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not made by tempfile: its files are their owner's only, and this one gets the final name.
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        if not _named(temporary, path):
            return False
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def _named(temporary: Path, path: Path) -> bool:
    """Give a whole file its name; False if the name is taken. A rename alone would replace what is there."""
    try:
        path.hardlink_to(temporary)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if path.exists():
            return False
        temporary.replace(path)
    return True


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
