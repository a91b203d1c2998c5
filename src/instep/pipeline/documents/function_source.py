"""Documents that functions of a project list and read: a source for what no adapter knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, unquote

from instep.domain.manifest import SourceDocument
from instep.domain.storable import storable_version
from instep.errors import InstepError, UserError
from instep.own_faults import is_stop
from instep.pipeline.documents.functions import FunctionFailed, OwnFunction
from instep.pipeline.documents.parse import titled
from instep.sources.document_source import Answer, Content, Listing, Unreadable, Vanished
from instep.sources.local_files import check_size

SCHEME: Final = "function://"
_SAFE: Final = ":"
#: Documents between two reports of a listing.
_PROGRESS_EVERY: Final = 1_000
#: What is said to be larger counts as this large, in bytes.
_LARGEST: Final = 2**50


class ListedDocument(NamedTuple):
    """A document of a listing. `version` is another one whenever the document has changed. `size` in bytes tells how
    much work it is, about.
    """

    id: str
    version: str
    size: int | None = None


class ReadDocument(NamedTuple):
    """A document as it is read. Bytes are parsed by what its id ends with, as files are; text is indexed as it is.
    `fields` are the values of declared columns.
    """

    content: str | bytes
    title: str | None = None
    modified: datetime | None = None
    fields: Mapping[str, Any] | None = None


class ListFunction(Protocol):
    """All documents that there are now, each once: what is not among them is gone."""

    def __call__(self) -> Iterable[ListedDocument | tuple[str, str]]: ...


class ReadFunction(Protocol):
    """The id of a listed document → the document; None if it is gone by now."""

    def __call__(self, id: str, /) -> ReadDocument | str | bytes | None: ...


@dataclass(frozen=True)
class FunctionSource:
    """Implements `sources.document_source.DocumentSource`. The document with an id is `function://<entity>/<id>`."""

    entity: str
    listing: OwnFunction
    reading: OwnFunction

    @property
    def own(self) -> OwnFunction:
        """The function that tasks call."""
        return self.reading

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Raises `UserError` if the function fails, or says something else than documents."""
        try:
            documents = sorted(self._documents(progress))
        except FunctionFailed as error:
            raise UserError(f"it cannot list documents: {error}", where=self.listing.name) from error
        except InstepError:
            raise
        except BaseException as error:  # What a generator raises, it raises here.
            if is_stop(error):
                raise
            told = self.listing.explained(error)
            raise UserError(f"it cannot list documents: {told}", where=self.listing.name) from error
        twice = next((one.uri for one, other in pairwise(documents) if one.uri == other.uri), None)
        if twice is not None:
            raise UserError(f"it lists {twice} twice", where=self.listing.name)
        return Listing(documents, [])

    def _documents(self, progress: Callable[[int], None] | None) -> Iterator[SourceDocument]:
        listed, number = self.listing.call(counted=False), 0
        if not isinstance(listed, Iterable):
            raise UserError(
                f"it returned {type(listed).__name__}, not documents",
                where=self.listing.name,
                hint="Return a list of them, which may be empty, or yield them.",
            )
        for number, each in enumerate(listed, start=1):
            yield self._listed(each)
            if progress and not number % _PROGRESS_EVERY:
                progress(number)
        if progress:
            progress(number)

    def _listed(self, each: Any) -> SourceDocument:
        try:
            name, version, size = (*each, None)[:3] if isinstance(each, tuple) else (None, None, None)
            # An estimate: a document that turns out to have another size has not changed for that.
            document = _sound(name), _sound(version), -1 if size is None else -min(max(1, int(size)), _LARGEST)
            uri = self._uri(document[0])
        except (TypeError, ValueError, OverflowError):
            raise UserError(
                f"it lists {type(each).__name__}, not documents",
                where=self.listing.name,
                hint="Give a ListedDocument, or a pair, of an id and a version: texts that are not empty, "
                "the id of whole characters. A size is a number of bytes.",
            ) from None
        return SourceDocument(uri, document[2], storable_version(document[1]))

    def names(self, text: str) -> Iterator[str]:
        """The URI of the document that the functions call so."""
        yield self._uri(text)

    def _uri(self, id: str) -> str:
        return f"{SCHEME}{self.entity}/{quote(id, safe=_SAFE)}"

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        for document in documents:
            try:
                yield self._read(document, max_bytes)
            except (Vanished, Unreadable) as answer:
                yield answer

    def _read(self, document: SourceDocument, max_bytes: int) -> Content:
        name = unquote(document.uri.removeprefix(f"{SCHEME}{self.entity}/"))
        try:
            made = self.reading.call(name, wrong=_not_read)
        except FunctionFailed as error:
            raise Unreadable(str(error)) from error
        if made is None:
            raise Vanished
        found = ReadDocument(made) if isinstance(made, str | bytes) else made
        text = isinstance(found.content, str)
        data = found.content.encode("utf-8", "replace") if isinstance(found.content, str) else found.content
        check_size(len(data), max_bytes)
        title = None if found.title is None else titled(found.title)
        return Content(data, len(data), document.version, title, text, found.modified, found.fields or {})


def _not_read(made: object) -> str | None:
    """The reason why the answer of a `ReadFunction` is of no use."""
    if made is None or isinstance(made, str | bytes):
        return None
    if not isinstance(made, ReadDocument) or not isinstance(made.content, str | bytes):
        return f"{type(made).__name__}, not text, bytes or a ReadDocument"
    for name, value, kind, what in (
        ("title", made.title, str, "text"),
        ("modified", made.modified, datetime, "a datetime"),
        ("fields", made.fields, Mapping, "a mapping"),
    ):
        if value is not None and not isinstance(value, kind):
            return f"a ReadDocument whose `{name}` is {type(value).__name__}, not {what}"
    return None


def _sound(text: Any) -> str:
    if not isinstance(text, str) or not text:
        raise ValueError("no text")
    return text
