"""A source whose documents change between runs, and what an index of it must hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random

from instep.domain.identity import document_id
from instep.domain.manifest import SourceDocument
from instep.sources.document_source import Listing

#: What an index holds: (document id, place of the chunk, its text), each so many times.
Rows = Counter[tuple[str, int, str]]


#: At the end of a transform's name: it fails on some documents that others do not fail on.
WRONG = "!"


class Poison(Enum):
    """The effect of running a document: its process dies, its wave fails, or it is reported."""

    KILLS = auto()
    RAISES = auto()
    FAILS = auto()


@dataclass(frozen=True, slots=True)
class Document:
    """`texts` are its chunks; `size` makes it count for so many rows in plans."""

    uri: str
    version: int
    size: int
    texts: tuple[str, ...]
    poison: Poison | None = None

    @property
    def hash(self) -> str:
        return f"{self.uri}#{self.version}"

    def fails_under(self, transform: str) -> bool:
        return self.poison is Poison.FAILS or (transform.endswith(WRONG) and int(self.uri.rsplit("/", 1)[1]) % 3 == 0)


class Source:
    """All documents of one entity. Implements the listing of `sources.document_source.DocumentSource` and keeps old
    versions.
    """

    def __init__(self, entity: str, random: Random, *, most: int, poison: float) -> None:
        self._entity = entity
        self._random = random
        self._poison = poison
        self._made = 0
        #: It is there, and holds nothing yet.
        self.empty = False
        self.problems: list[str] = []
        self.documents: dict[str, Document] = {}
        self.versions: dict[tuple[str, str], Document] = {}
        # It is always there, and good: a rebuild that comes out empty is not served, and rightly so.
        self._first = self._uri(1)
        for _ in range(random.randint(1, most)):
            self._add()

    def listing(self) -> Listing:
        documents = () if self.empty else self.documents.values()
        found = [SourceDocument(each.uri, each.size, str(each.version)) for each in documents]
        return Listing(found, self.problems)

    def edit(self) -> None:
        """Some are changed, deleted or added."""
        random = self._random
        for uri, document in list(self.documents.items()):
            chance = random.random()
            if chance < 0.3:
                self._put(uri, document.version + 1, document.texts)
            elif chance < 0.4 and uri != self._first:
                del self.documents[uri]
        if random.random() < 0.5:
            self._add()

    def shrink(self, most: int) -> None:
        """To its first documents, each small."""
        while len(self.documents) < most:
            self._add()
        for uri, document in list(self.documents.items())[:most]:
            self.documents[uri] = self.versions[uri, "1"] = replace(document, size=300, poison=None)
        for uri in list(self.documents)[most:]:
            del self.documents[uri]

    def truth(self, keep: Callable[[Document], bool] = lambda _: True) -> Rows:
        return sum((rows_of(each) for each in self.documents.values() if keep(each)), Counter())

    def _add(self) -> None:
        self._made += 1
        self._put(self._uri(self._made), 1, ())

    def _uri(self, number: int) -> str:
        return f"sim://{self._entity.lower()}/{number}"

    def _put(self, uri: str, version: int, before: tuple[str, ...]) -> None:
        """Of a changed document some chunks stay as they are."""
        random = self._random
        count = random.choice((1, 2) if uri == self._first else (0, 1, 1, 2, 3))
        texts = tuple(
            before[place] if place < len(before) and random.random() < 0.4 else f"{uri}/{place} v{version}"
            for place in range(count)
        )
        poison = random.choice(list(Poison)) if random.random() < self._poison and uri != self._first else None
        document = Document(uri, version, random.randint(300, 900), texts, poison)
        self.documents[uri] = self.versions[uri, str(version)] = document


_IDS: dict[str, str] = {}


def id_of(uri: str) -> str:
    """The document's id; these URIs are canonical."""
    known = _IDS.get(uri)
    if known is None:
        known = _IDS[uri] = document_id(uri)
    return known


def rows_of(document: Document) -> Rows:
    identity = id_of(document.uri)
    return Counter((identity, place, text) for place, text in enumerate(document.texts))
