"""Listing and reading through fsspec: object stores, archives, anything with a URL."""

from __future__ import annotations

import hashlib
import io
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import IO, Any, Final
from urllib.parse import quote, unquote, urlsplit

from instep.domain.identity import canonical_uri
from instep.domain.manifest import SourceDocument
from instep.domain.storable import storable_version
from instep.error_transport import missing
from instep.errors import InstepError, Transient, UserError
from instep.sources.document_source import NOT_THERE, Content, Looked, Unread, Unreadable, Unseen, Vanished
from instep.sources.globs import Globs
from instep.sources.local_files import READS, check_size, reason
from instep.sources.s3_listing import Page, Portion, is_s3, pages, parted, prefix_of

#: Where a listing says which version of a file it saw, best first: by its content, or when it was written.
_CONTENT_KEYS: Final = (
    *("ETag", "etag", "content_md5", "md5Hash", "md5", "checksum", "generation", "CRC"),
    *("version_id", "VersionId"),
)
_VERSION_KEYS = (
    *_CONTENT_KEYS,
    *("mtime", "LastModified", "last_modified", "modified", "updated", "date_time", "created"),
)
#: Protocols whose URLs start with a host or bucket, in which case does not matter.
_WITH_HOST = frozenset(
    {"abfs", "abfss", "adl", "az", "ftp", "gcs", "gs", "hdfs", "http", "https", "oci", "oss", "s3", "s3a", "sftp"}
    | {"smb", "ssh", "tos", "webdav", "webhdfs"}
)
_BUFFER = 1 << 20
#: Protocols of stores that tell of their objects by bucket and key.
S3: Final = frozenset({"s3", "s3a"})
_SAFE = "/-._~!$&'()*+,;=:@"
#: Splits a path into the object and its version, for s3fs.
_VERSION: Final = "?versionId="


def is_url(root: str) -> bool:
    """Whether a root is for fsspec; `file://` is not: local files have a quicker way."""
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)", root)) and not root.lower().startswith("file://")


def in_s3(root: str) -> bool:
    """Whether a root is the URL of a bucket, or of something in one."""
    return urlsplit(root).scheme in S3 and "::" not in root


class UrlRoot:
    """A root behind an fsspec URL, chained ones (`zip://docs::s3://bucket/a.zip`) included."""

    def __init__(self, url: str, options: Mapping[str, Any]) -> None:
        self.url = url
        self._options = dict(options)
        self.base = base_uri(url)
        self._opened: tuple[Any, str] | None = None

    def list(
        self,
        include: Globs,
        exclude: Globs,
        problem: Callable[[str], None],
        *,
        nowhere: Callable[[str, Unseen], None],
    ) -> Iterator[SourceDocument]:
        """List the documents. `nowhere` is told of a folder beside a file that may not be listed. Raises `UserError`
        when there is nothing at the URL.
        """
        fs, root = self._open()
        if (top := self._top(problem)) is None:
            return

        def told(path: str, why: str) -> None:
            problem(self._shown(path, why))

        def refused(why: str) -> None:
            nowhere(f"{self.base}/", Unseen(f"{self.base}/: {why}", "grant the right to list it"))

        single = top.get("type") == "file"
        files = _with_its_folder(fs, root, top, told, refused) if single else files_below(fs, root, told)
        yield from self._documents(files, include, exclude, problem)

    def portions(self, enough: int) -> Sequence[Portion | None]:
        """All that is below this root of S3, in so many portions if it has folders enough; None: unparted. Raises
        `UserError` when there is nothing at the URL.
        """
        fs, root = self._open()
        top = self._top(lambda why: None)
        return [None] if top is None or top.get("type") == "file" else parted(fs, *prefix_of(fs, root), enough)

    def portion(
        self, portion: Portion | None, include: Globs, exclude: Globs, problem: Callable[[str], None]
    ) -> Iterator[SourceDocument]:
        """List the documents of a portion. It had some when all was parted: where none is seen, it is not listed.
        What has been found before is not known to tasks, so what may not be listed is a problem in any case.
        """
        if portion is None:
            return self.list(include, exclude, problem, nowhere=lambda uri, unseen: problem(unseen.what))
        return self._documents(self._objects(portion, problem), include, exclude, problem)

    def _objects(self, portion: Portion, problem: Callable[[str], None]) -> Iterator[tuple[str, Mapping[str, Any]]]:
        fs, root = self._open()
        bucket, _ = prefix_of(fs, root)
        seen = False
        try:
            for page in pages(fs, bucket, *portion):
                seen = seen or bool(page.objects) or page.removed
                yield from _no_marks(page)
        except Exception as error:  # What was listed before counts all the same.
            problem(self._shown(f"{bucket}/{portion.prefix}", _reason(error)))
        else:
            if not seen:
                problem(self._shown(f"{bucket}/{portion.prefix}", f"{socket.gethostname()} sees nothing there"))

    def _top(self, problem: Callable[[str], None]) -> Mapping[str, Any] | None:
        """The store's answer about the root; None if it cannot be asked."""
        fs, root = self._open()
        try:
            fs.invalidate_cache()
            top: Mapping[str, Any] = fs.info(root)
        except FileNotFoundError:
            raise UserError(f"there is nothing at {self.base}", hint="Check the path of the source.") from None
        except Exception as error:
            problem(f"{self.base}: {_reason(error)}")
            return None
        return top

    def _documents(
        self,
        files: Iterable[tuple[str, Mapping[str, Any]]],
        include: Globs,
        exclude: Globs,
        problem: Callable[[str], None],
    ) -> Iterator[SourceDocument]:
        fs, root = self._open()
        for path, info in files:
            relative = _inner(path, root)
            if relative and _left_out(relative, include, exclude):
                continue
            if info.get("type", "file") == "file":
                try:
                    yield SourceDocument(self._uri(relative), _size(info), file_version(fs, path, info))
                except FileNotFoundError:
                    continue
                except Exception as error:
                    problem(self._shown(path, _reason(error)))

    def _shown(self, path: str, why: str) -> str:
        _, root = self._open()
        return f"{self._uri(path[len(root) :].strip('/'))}: {why}"

    def below(self, path: str) -> str | None:
        """The path from this root to an object of a store, which is named as it is: `s3://bucket/key`. Empty for the
        root itself, None for what is elsewhere.
        """
        if not in_s3(self.url):
            return None
        _, root = self._open()
        inner = path.partition("://")[2]
        if inner == root:
            return ""
        within = f"{root.rstrip('/')}/"
        return inner.removeprefix(within) if inner.startswith(within) else None

    def prefix(self) -> tuple[str, str]:
        """Its bucket, and the key at which or in which its objects are, of a store of such."""
        _, root = self._open()
        bucket, _, key = root.partition("/")
        return bucket, key.rstrip("/")

    def path_of(self, uri: str) -> str:
        """The path of a document as messages name it: `s3://bucket/key`."""
        return f"s3://{self._path(uri)[1]}"

    def look(self, path: str, include: Globs, exclude: Globs) -> Looked | None:
        """Look at one object, which is below this root. None for what cannot be told of it alone."""
        relative = self.below(path)
        if not relative or relative.endswith("/"):
            return None if relative == "" else NOT_THERE
        if _left_out(relative, include, exclude):
            return NOT_THERE
        fs, root = self._open()
        bucket, _, key = f"{root.rstrip('/')}/{relative}".partition("/")
        try:
            # As listings tell it: asked for one object, a store may round its time.
            found = fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1).get("Contents") or [{}]
            if found[0].get("Key") != key:
                return Looked([], [self._uri(relative)])
            version = file_version(fs, f"{bucket}/{key}", found[0])
        except Exception:  # Stores are not ours; the listing says what is wrong.
            return None
        return Looked([SourceDocument(self._uri(relative), int(found[0]["Size"]), version)], [])

    def owns(self, uri: str) -> bool:
        return uri == self.base or uri.startswith(self.base.rstrip("/") + "/")

    def open(self, uri: str) -> IO[bytes]:
        """Open a document. Raises `Vanished` or `Unread`; reading it then raises `OSError`."""
        fs, path = self._path(uri)
        with self._answered():
            fs.invalidate_cache()
            return io.BufferedReader(fs.open(path, "rb"), _BUFFER)

    def part(self, uri: str, start: int, length: int) -> bytes:
        """Read some bytes. Raises `Vanished` or `Unread`."""
        fs, path = self._path(uri)
        with self._answered():
            data: bytes = fs.cat_file(path, start=start, end=start + length)
            return data

    def read(self, uri: str, *, max_bytes: int) -> Content:
        fs, path = self._path(uri)
        _demand_plain(fs, path)
        with self._answered():
            for _ in range(READS):
                fs.invalidate_cache()
                before = fs.info(path)
                check_size(_size(before), max_bytes)
                known = before.get("size") is not None
                data = fs.cat_file(path) if known else fs.cat_file(path, start=0, end=max_bytes + 1)
                check_size(len(data), max_bytes)
                version = file_version(fs, path, before)
                fs.invalidate_cache()
                after = fs.info(path)
                if version == file_version(fs, path, after) and before.get("size") in (None, len(data)):
                    return Content(data, _size(before), version)
        raise Unread("changes while it is being read")

    @contextmanager
    def _answered(self) -> Iterator[None]:
        """Stores are not ours: whatever they raise says that a document cannot be read, if they answer otherwise. One
        that does not is away, which is no document's fault.
        """
        try:
            yield
        except (FileNotFoundError, KeyError):
            raise Vanished from None
        except (Vanished, Unreadable, InstepError, ImportError):
            raise
        except Exception as error:
            if not isinstance(error, PermissionError) and not self._answers():
                raise Transient(f"{self.base} does not answer: {_reason(error)}") from error
            raise Unread(_reason(error)) from None

    def _answers(self) -> bool:
        fs, root = self._open()
        try:
            fs.invalidate_cache()
            fs.info(root)
        except (FileNotFoundError, PermissionError, NotImplementedError, ValueError):
            return True
        except Exception:
            return False
        return True

    def _path(self, uri: str) -> tuple[Any, str]:
        fs, root = self._open()
        relative = unquote(_inner(uri, self.base), errors="surrogateescape")
        return fs, f"{root.rstrip('/')}/{relative}" if relative else root

    def _open(self) -> tuple[Any, str]:
        if self._opened is None:
            import fsspec

            try:
                fs, root = fsspec.core.url_to_fs(self.url, **self._options)
            except ImportError as error:
                # fsspec says which package; what failed to be imported is its cause.
                cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
                raise missing(cause, where=self.base) from None
            except FileNotFoundError:
                raise UserError(f"there is nothing at {self.base}", hint="Check the path of the source.") from None
            except (OSError, ValueError) as error:
                if str(error).startswith("Protocol not known"):
                    scheme = self.base.partition(":")[0]
                    hint = "Install the package of fsspec that brings it (for abfs and abfss: adlfs; for gs: gcsfs)."
                    raise UserError(
                        f"no package here reads {scheme}:// addresses", where=self.base, hint=hint
                    ) from None
                hint = "Check the address and the options of the source."
                raise UserError(f"{self.base} cannot be opened: {_reason(error)}", hint=hint) from None
            self._opened = fs, str(root)
        return self._opened

    def _uri(self, relative: str) -> str:
        if not relative:
            return self.base
        return f"{self.base.rstrip('/')}/{quote(relative, safe=_SAFE, errors='surrogateescape')}"


def _demand_plain(fs: Any, path: str) -> None:
    """Check that the path is that of one object alone. Raises `Unreadable` if not."""
    if is_s3(fs) and _VERSION in path:
        raise Unreadable(f"its key has {_VERSION} in it, by which s3fs reads a version of another object")


def _inner(path: str, root: str) -> str:
    """The path from a root on. In a store, `a//b` is another object than `a/b`."""
    return path[len(root.rstrip("/")) :].removeprefix("/")


def _left_out(relative: str, include: Globs, exclude: Globs) -> bool:
    """Whether globs leave out a file, by its path from a root. They know no folder without a name before it."""
    path = relative.lstrip("/")
    return bool((include and not include.matches(path)) or (exclude and exclude.matches(path)))


def files_below(fs: Any, root: str, problem: Callable[[str, str], None]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Paths of all that is no folder under a folder, with what the store says of them. `problem` is told of folders
    that could not be listed, and why.

    `fs.find` leaves these out without a word, as `fs.walk` does: so folders are listed one by one here. A store that
    finds in a way of its own, all of a bucket in one listing, has no folders to leave out; of S3, no more than a page
    of it is held.
    """
    folders = [root]
    if is_s3(fs):
        try:
            for page in pages(fs, *prefix_of(fs, root)):
                yield from _no_marks(page)
        except Exception as error:  # What was listed before counts all the same.
            problem(root, _reason(error))
        return
    if _finds_at_once(fs):
        try:
            yield from fs.find(root, detail=True).items()
        except Exception as error:  # Stores are not ours: whatever they raise, what they have is not known.
            problem(root, _reason(error))
        return
    while folders:
        folder = folders.pop()
        try:
            listed = fs.ls(folder, detail=True)
        except Exception as error:
            problem(folder, _reason(error))
            continue
        for info in listed:
            path = info["name"].rstrip("/")
            if info.get("type") != "directory":
                yield info["name"], info
            elif path != folder.rstrip("/"):
                folders.append(path)


def _with_its_folder(
    fs: Any,
    path: str,
    info: Mapping[str, Any],
    problem: Callable[[str, str], None],
    refused: Callable[[str], None],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A file, and all that is in a folder with the same name, which S3 may have as well. `refused` is told why it may
    not be listed: some may read a file, and list nothing.
    """
    yield path, info
    if not is_s3(fs):
        return
    seen = False
    try:
        for page in pages(fs, *prefix_of(fs, path)):
            seen = True
            yield from _no_marks(page)
    except Exception as error:
        if isinstance(error, PermissionError) and not seen:
            refused(_reason(error))
        else:
            problem(path, _reason(error))


def _no_marks(page: Page) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Objects by their paths. Consoles and copies make one of a folder, whose key ends in a slash."""
    return ((info["name"], info) for info in page.objects if not info["name"].endswith("/"))


def _finds_at_once(fs: Any) -> bool:
    from fsspec import AbstractFileSystem
    from fsspec.asyn import AsyncFileSystem
    from fsspec.implementations.dirfs import DirFileSystem

    if isinstance(fs, DirFileSystem):
        return _finds_at_once(fs.fs)
    # Of a store that is asynchronous, `find` is a wrapper around `_find`.
    found = getattr(fs.find, "__wrapped__", fs.find)
    return getattr(found, "__func__", found) not in (AbstractFileSystem.find, AsyncFileSystem._find)


def base_uri(url: str) -> str:
    """The URI that stands for a root; what is below it is added to its path.

    User, query and fragment are dropped. A chain is written from the outside in, as jar URLs are:
    `zip://docs::s3://bucket/a.zip` → `zip:///s3://bucket/a.zip!/docs`.
    """
    link, *rest = url.split("::", 1)
    protocol, separator, path = link.partition("://")
    if not separator:
        protocol, path = (link, "") if rest else ("file", link)
    protocol = protocol.lower()
    if rest:
        inner = quote(path.strip("/"), safe=_SAFE)
        return f"{protocol}:///{base_uri(rest[0]).removeprefix('file://').lstrip('/')}!/{inner}".rstrip("/")
    if protocol in _WITH_HOST:
        parts = urlsplit(f"{protocol}://{path}")
        clean = f"{protocol}://{parts.netloc}{quote(unquote(parts.path), safe=_SAFE)}"
        return canonical_uri(clean if parts.path else clean + "/").rstrip("/")
    return f"{protocol}:///{quote(path.strip('/'), safe=_SAFE)}"


def _size(info: Mapping[str, Any]) -> int:
    return int(info.get("size") or 0)


def file_version(fs: Any, path: str, info: Mapping[str, Any]) -> str:
    """Text that changes when the file does; asked for one by one if the listing does not say."""
    for known in (info, None):
        facts = fs.info(path) if known is None else known
        found = next((facts[key] for key in _VERSION_KEYS if facts.get(key)), None)
        if found is not None:
            # One and the same moment comes as a date from one call and as a number from the next.
            text = str(found.timestamp() if isinstance(found, datetime) else found).strip('"')
            return storable_version(text)
    plain = sorted((key, value) for key, value in facts.items() if isinstance(value, str | int | float))
    return hashlib.sha256(repr(plain).encode()).hexdigest()[:16]


def content_version(info: Mapping[str, Any]) -> str | None:
    """Text that changes when the content of a file does, such as its ETag. None if its store tells no more than a time,
    which can be set back.
    """
    return next((str(info[key]).strip('"') for key in _CONTENT_KEYS if info.get(key)), None)


def _reason(error: Exception) -> str:
    return reason(error) if isinstance(error, OSError) and error.strerror else type(error).__name__
