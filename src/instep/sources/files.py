"""Documents in files: local folders, and whatever fsspec can list."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

from instep.domain.identity import file_uri, project_uri
from instep.domain.manifest import SourceDocument
from instep.errors import UserError
from instep.sources import local_files
from instep.sources.document_source import NOT_THERE, Answer, Content, Listing, Looked, Unreadable, Unseen, Vanished
from instep.sources.globs import Globs
from instep.sources.url_files import UrlRoot, in_s3, is_url

if TYPE_CHECKING:
    from instep.sources.s3_inventory import Manifest, S3Inventory
    from instep.sources.s3_listing import Portion

_PROGRESS_EVERY = 1_000
#: Requests to a store that are open at once.
_AT_ONCE: Final = 16
_LOCAL = "file://"
_PROJECT = "project://"

_MOUNT: Final = "mount what belongs there, or say that it is to be empty: --allow-empty"

_NOT_SEEN: Final = (
    "it is in the source, and not in what is served: nothing of it was indexed, or no run has seen it yet"
)


class FilesPortion(NamedTuple):
    """A portion of what is below a root; None: all of it."""

    root: str
    portion: Portion | None


@dataclass(frozen=True)
class FilesSource:
    """Files under `roots` (folders, single files or URLs) that match `include` and not `exclude`.

    Globs are those of .gitignore, relative to each root, but that `*.md` includes files only; no `include` means
    everything. A root that is a file is taken as it is. Implements `sources.document_source.DocumentSource`.

    A relative root is one in the folder `project`, and its files are named by their path from there: they keep their
    names wherever that folder is. Without `project` it is relative to the current folder, and named as absolute ones.

    `inventory` lists all of a bucket, in which all roots are then.
    """

    roots: tuple[str, ...]
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    project: str | None = None
    inventory: S3Inventory | None = None

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Everything found, sorted by URI; a file under two roots once."""
        problems: list[str] = []
        nowhere: dict[str, Unseen] = {}
        documents: list[SourceDocument] = []
        for found in self._found(problems.append, nowhere.__setitem__):
            documents.append(found)
            if progress and len(documents) % _PROGRESS_EVERY == 0:
                progress(len(documents))
        if documents:  # Of a source without any the delete guard asks.
            nowhere |= self._empty_roots()
        documents.sort(key=itemgetter(0))
        documents = [each for place, each in enumerate(documents) if not place or each[0] != documents[place - 1][0]]
        listed = self._named_once(documents)
        if progress:
            progress(len(listed))
        return Listing(listed, problems, nowhere=nowhere)

    def _empty_roots(self) -> Iterator[tuple[str, Unseen]]:
        """Local roots in which nothing is at all, as where a volume is not mounted."""
        for root in self.roots:
            if is_url(root):
                continue
            path, name = self._place(root)
            if local_files.is_empty_folder(path):
                yield f"{name.rstrip('/')}/", Unseen(f"{local_files.shown(path)}: an empty folder", _MOUNT, empty=True)

    def one_by_one(self) -> Iterator[SourceDocument]:
        """Everything that can be listed, as it is found: one is held. A file under two roots comes twice."""
        return self._found(lambda why: None, lambda uri, unseen: None)

    def _found(
        self, problem: Callable[[str], None], nowhere: Callable[[str, Unseen], None]
    ) -> Iterator[SourceDocument]:
        include, exclude = self._globs()
        for root in self.roots:
            yield from self._under(root, include, exclude, problem, nowhere=nowhere)

    def _globs(self) -> tuple[Globs, Globs]:
        return Globs(self.include, of_files=True), Globs(self.exclude)

    @property
    def portioned(self) -> bool:
        """Whether all of it is in S3, and listed there: tasks can do that, each a portion."""
        return self.inventory is None and all(map(in_s3, self.roots))

    def portions(self, enough: int) -> Sequence[FilesPortion]:
        """All of it, whose roots are in S3, in so many portions about. Raises `UserError` when a root is missing."""
        return [FilesPortion(root.url, each) for root in self._urls() for each in root.portions(enough)]

    def portion(self, portion: FilesPortion, problem: Callable[[str], None]) -> Iterator[SourceDocument]:
        """List a portion; `problem` is told what of it cannot be listed."""
        root = next(each for each in self._urls() if each.url == portion.root)
        return root.portion(portion.portion, *self._globs(), problem)

    def listed_before(self, manifest: Manifest, progress: Callable[[int], None] | None = None) -> Listing:
        """The listing that an inventory is. Raises `Damaged` if it cannot be read as a whole, or has nothing below a
        root, and `UserError` if it is of no use.
        """
        from instep.sources.inventory_listing import listed

        assert self.inventory is not None, "asked for its manifest"
        documents = listed(
            self.inventory.objects(manifest),
            self._urls(),
            *self._globs(),
            progress or (lambda found: None),
        )
        return Listing(documents, [], as_of=manifest.created)

    def look_again(self, uris: Iterable[str]) -> Looked | None:
        """Look at documents of a listing as they are now. None where only a listing tells that."""
        paths = [self._root(uri).path_of(uri) for uri in uris if self.holds(uri)]
        if any(path.endswith("/") for path in paths):
            return None
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            answers = [*pool.map(lambda path: self.look([path]), paths)]
        found = [each for each in answers if each is not None]
        if len(found) < len(answers):
            return None
        return Looked([*chain(*(each.documents for each in found))], [*chain(*(each.missing for each in found))])

    def folders(self) -> Sequence[str] | None:
        """The folders below which all its files are; None if some are elsewhere, or are named one by one."""
        if any(map(is_url, self.roots)):
            return None
        found = [os.fsdecode(self._place(root)[0]) for root in self.roots]
        return found if all(map(os.path.isdir, found)) else None

    def look(self, paths: Iterable[str]) -> Looked | None:
        """Look at these paths alone: of this machine, or `s3://bucket/key` as it is, without %-codes. None where only a
        listing tells what has changed: a folder, a link, or what is below several roots.
        """
        include, exclude = self._globs()
        documents: list[SourceDocument] = []
        missing: list[str] = []
        for path in paths:
            found = self._look_at(path, include, exclude)
            if found is None:
                return None
            documents += found.documents
            missing += found.missing
        return Looked(documents, missing)

    def _look_at(self, path: str, include: Globs, exclude: Globs) -> Looked | None:
        if is_url(path):
            urls = [root for root in self._urls() if root.below(path) is not None]
            if len(urls) == 1:
                return urls[0].look(path, include, exclude)
            return None if urls else NOT_THERE
        places = [self._place(root) for root in self.roots if not is_url(root)]
        found = [place for place in places if local_files.is_below(os.fsencode(path), place[0])]
        if len(found) == 1:
            return local_files.look(os.fsencode(path), *found[0], include, exclude)
        return None if found else NOT_THERE

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        for document in documents:
            try:
                yield self.read(document.uri, max_bytes=max_bytes)
            except (Vanished, Unreadable) as answer:
                yield answer

    def read(self, uri: str, *, max_bytes: int) -> Content:
        """Read one document. Raises `Vanished` or `Unreadable`."""
        if (path := self.path_of(uri)) is not None:
            return local_files.read(path, max_bytes=max_bytes)
        return self._root(uri).read(uri, max_bytes=max_bytes)

    def open(self, uri: str) -> IO[bytes]:
        """A file from its start. Raises `Vanished` or `Unreadable`; reading it then raises `OSError`."""
        return self._root(uri).open(uri) if (path := self.path_of(uri)) is None else local_files.opened(path)

    def part(self, uri: str, start: int, length: int) -> bytes:
        """Read some bytes of a file, fewer if it ends before. Raises `Vanished` or `Unreadable`."""
        if (path := self.path_of(uri)) is not None:
            return local_files.part(path, start, length)
        return self._root(uri).part(uri, start, length)

    def holds(self, uri: str) -> bool:
        """Whether a file of a listing may have been one of this source."""
        if self.path_of(uri) is not None:
            return not all(map(is_url, self.roots))
        return any(root.owns(uri) for root in self._urls())

    def path_of(self, uri: str) -> bytes | None:
        """The path of the local file with this URI; None for others."""
        if uri.startswith(_LOCAL):
            return unquote_to_bytes(uri.removeprefix(_LOCAL))
        if self.project is None or not uri.startswith(_PROJECT):
            return None
        return _joined(self.project, unquote_to_bytes(uri.removeprefix(_PROJECT).lstrip("/")))

    def names(self, text: str) -> Iterator[str]:
        """URIs of a file that a user names by one of them, or by a path: as it is found from the current
        folder, or from the project's.
        """
        if (path := self.path_of(text)) is not None:
            paths = [path]
        elif is_url(text):
            return
        else:
            paths = [_joined(folder, os.fsencode(text)) for folder in (self.project, os.getcwd()) if folder]  # noqa: PTH109
        for path in dict.fromkeys(paths):
            if self.project is not None:
                folder = os.fsencode(self.project)
                yield project_uri(os.path.relpath(path, folder))
                # The current folder may have been reached by a link, or the project by one.
                yield project_uri(os.path.relpath(os.path.realpath(path), os.path.realpath(folder)))
            yield file_uri(path)

    def why_not_indexed(self, text: str) -> str | None:
        """The reason why a local file may not be indexed: it is not there, left out by a glob, or not seen yet."""
        paths = [found for uri in self.names(text) if (found := self.path_of(uri)) is not None]
        path: bytes | None = next(filter(os.path.isfile, paths), None)
        if path is None:  # An id of a chunk names no file.
            return "there is no such file" if paths and re.search(r"[/.]", text) else None
        for root in (each for each in self.roots if not is_url(each)):
            folder, _ = self._place(root)
            relative = os.fsdecode(os.path.relpath(os.path.realpath(path), os.path.realpath(folder)))
            if relative == ".":
                return _NOT_SEEN
            if not relative.startswith(".."):
                return self._left_out(relative) or _NOT_SEEN
        return "it is in none of the folders of the source"

    def not_included(self) -> Sequence[str]:
        """URIs of the files below its roots that no `include` takes and no `exclude` leaves out, sorted."""
        if not self.include:
            return []
        taken = {each.uri for each in self.list().documents}
        return [each.uri for each in replace(self, include=()).list().documents if each.uri not in taken]

    def _left_out(self, relative: str) -> str | None:
        if Globs(self.exclude).leave_out(relative):
            return "`exclude` leaves it out"
        include = Globs(self.include, of_files=True)
        return "no `include` matches it" if include and not include.matches(relative) else None

    def _under(
        self,
        root: str,
        include: Globs,
        exclude: Globs,
        problem: Callable[[str], None],
        *,
        nowhere: Callable[[str, Unseen], None],
    ) -> Iterator[SourceDocument]:
        if is_url(root):
            found = next(each for each in self._urls() if each.url == root)
            return found.list(include, exclude, problem, nowhere=nowhere)
        path, name = self._place(root)
        try:
            status = os.stat(path)  # noqa: PTH116 - the path is bytes
        except OSError as error:
            raise UserError(
                f"{local_files.shown(path)} cannot be listed: {local_files.reason(error)}",
                hint="Check the path of the source.",
            ) from None
        if stat.S_ISDIR(status.st_mode):
            return local_files.walk(path, name, include, exclude, problem, nowhere=nowhere)
        return iter([local_files.document(name, status)])

    def _place(self, root: str) -> tuple[bytes, str]:
        """Path of a local root, and the URI that it goes by."""
        if self.project is None or not is_relative(root):
            path = local_path(root)
            return path, file_uri(path)
        path = _joined(self.project, os.fsencode(root))
        name = project_uri(os.path.relpath(path, os.fsencode(self.project)))
        return path, name + "/" if path.endswith(b"/") else name

    def _named_once(self, documents: Sequence[SourceDocument]) -> Sequence[SourceDocument]:
        """A file under a relative root and an absolute one goes by the name that it has in the project."""
        if self.project is None or len({is_relative(root) for root in self.roots}) < 2:
            return documents
        paths = (self.path_of(each.uri) for each in documents if each.uri.startswith(_PROJECT))
        named = {file_uri(path) for path in paths if path is not None}
        return [each for each in documents if each.uri not in named]

    def _root(self, uri: str) -> UrlRoot:
        for root in self._urls():
            if root.owns(uri):
                return root
        raise Vanished  # The root it was found under is no longer part of the source.

    def _urls(self) -> tuple[UrlRoot, ...]:
        """Opened once in each process; they do not travel."""
        opened: tuple[UrlRoot, ...] | None = self.__dict__.get("_opened")
        if opened is None:
            opened = tuple(UrlRoot(root, self.storage_options) for root in self.roots if is_url(root))
            object.__setattr__(self, "_opened", opened)
        return opened

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_opened"}


def is_relative(root: str) -> bool:
    return not (is_url(root) or root.lower().startswith(_LOCAL) or os.path.isabs(root))  # noqa: PTH117 - it may be no text


def _joined(folder: str, path: bytes) -> bytes:
    """A path as `local_path` has it: symbolic links kept, also before `..`."""
    return os.path.normpath(os.path.join(os.fsencode(folder), path))  # noqa: PTH118 - paths are bytes


def local_path(root: str) -> bytes:
    """Absolute path of a local root, symbolic links kept."""
    if root.lower().startswith("file://"):
        return unquote_to_bytes(urlsplit(root).path)
    return os.path.abspath(os.fsencode(root))  # noqa: PTH100 - resolve() would follow links, and paths are bytes
