"""The port of document sources. Sources travel to Spark tasks, so they are picklable."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, runtime_checkable

from instep.domain.identity import content_hash, titled_content
from instep.domain.manifest import SourceDocument
from instep.domain.texts import amount

if TYPE_CHECKING:
    import pyarrow as pa


class Unseen(NamedTuple):
    """A place of which nothing is seen, with the reason, and how to mend it."""

    what: str
    hint: str
    #: It can be listed, and there is nothing in it.
    empty: bool = False


@dataclass(frozen=True, slots=True)
class Listing:
    """Everything found. `complete` is False when a part could not be listed: then nothing is deleted because it is not
    listed.

    `deleted` are URIs of documents that the source says are gone. `exhaustive`: what is not listed is gone as well.
    `nowhere`: links that lead to nothing, and folders (their URIs end in a slash) that may not be listed, by their
    URIs. `orphans`: so many rows are part of documents that are not there. `as_of`: it tells of that moment (ms), and
    of nothing since; None: of now. `warnings` are about the way in which it was listed.
    """

    documents: Sequence[SourceDocument]
    problems: Sequence[str]
    deleted: Sequence[str] = ()
    exhaustive: bool = True
    nowhere: Mapping[str, Unseen] = field(default_factory=dict)
    orphans: int = 0
    as_of: int | None = None
    warnings: Sequence[str] = ()

    @property
    def complete(self) -> bool:
        return not self.problems

    def with_empty_folders(self) -> Listing:
        """The listing for a user who says that folders with nothing in them are empty, and not away."""
        return replace(self, nowhere={at: each for at, each in self.nowhere.items() if not each.empty})

    def seen_from(self, indexed: Iterable[str]) -> Listing:
        """The listing for an index of these URIs: a place of which nothing is seen is a problem if something has been
        found there before. An unmounted volume looks just like a broken link.
        """
        if not self.nowhere:
            return self
        lost: Counter[str] = Counter()
        for uri in indexed:
            lost.update(at for at in self.nowhere if uri == at or uri.startswith(f"{at.removesuffix('/')}/"))
        said = [
            f"{self.nowhere[at].what}, and {amount(number, 'document')} {'was' if number == 1 else 'were'} found there"
            f"; {self.nowhere[at].hint}"
            for at, number in sorted(lost.items())
        ]
        return replace(self, problems=[*self.problems, *said])


class Row(NamedTuple):
    """A row of a table that is a document: `rows` have the declared columns in their types. `wrong` says why one of
    its values is none of its type; `facts` is a text that tells its values from others.
    """

    rows: pa.RecordBatch
    at: int
    wrong: str
    facts: str


class Content(NamedTuple):
    """A document as read: bytes, and the size and version that belong to exactly these bytes.

    `text`: the bytes are text in UTF-8 already, whatever its URI ends in; `title` is its title, if the source says it.
    `modified` is when it was, if that is known. `fields` are those of its line, or its row, if columns are declared.
    """

    data: bytes
    size: int
    version: str
    title: str | None = None
    text: bool = False
    modified: datetime | None = None
    fields: Mapping[str, Any] | Row | None = None

    @property
    def hash(self) -> str:
        """The hash of all that is indexed of it: a title that the source gives may change alone."""
        return content_hash(self.data if self.title is None else titled_content(self.title.encode(), self.data))


class Vanished(Exception):
    """The document was listed and is gone now. Not a failure: the next listing deletes it."""


class Unreadable(Exception):
    """The document is there and cannot be read; the message says why."""


class Unread(Unreadable):
    """A document that could not be read for now, whatever is in it: no right to, or a host that did not answer. Trying
    again may help, though nothing has changed in it.
    """


class TooLarge(Unreadable):
    """A document with more bytes than are to be read: so many, or at least that many."""

    def __init__(self, size: int) -> None:
        super().__init__(f"too large: {size:,} bytes")
        self.size = size


Answer: TypeAlias = Content | Vanished | Unreadable


class DocumentSource(Protocol):
    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """List all documents; `progress` is told the number found so far, now and then.

        Raises `UserError` when the root is missing.
        """

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        """Read documents of a listing, in their order, one answer each: a source may fetch some at once, but holds few
        of them. One of more than `max_bytes` is `TooLarge`.
        """


class Looked(NamedTuple):
    """The answer of a look at some paths: the documents there, and the URIs of those that are not there."""

    documents: Sequence[SourceDocument]
    missing: Sequence[str]


#: The answer about what is no document of the source, whether there is something or not.
NOT_THERE: Final = Looked([], [])


class SourceEvents(Protocol):
    """Messages of what changes in a source. Each is told at least once, if it arrives."""

    @property
    def failure(self) -> str:
        """The reason why none come now, or empty: then only listings find what changes."""

    def take(self) -> Collection[str] | None:
        """Take the paths that have changed and were not told yet; None if there were too many to remember."""

    def done(self, paths: Collection[str]) -> None:
        """Forget these paths: what has changed there is indexed, and need not be told again."""

    def close(self) -> None:
        """Stop listening."""


@runtime_checkable
class NamingSource(DocumentSource, Protocol):
    """A source whose documents users name otherwise than by their URIs, such as by paths."""

    def names(self, text: str) -> Iterator[str]:
        """The URIs of documents that may be meant by a name."""
