"""Sources that tasks can list and compare, and the choice to do so."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from instep.entities.documents.adapters import DocumentAdapters, WayToPlan
from instep.ledger.ledger import Ledger
from instep.pipeline.engine import choice
from instep.sources.document_source import DocumentSource
from instep.sources.files import FilesSource
from instep.sources.tables.row_documents import RowDocuments

if TYPE_CHECKING:
    from instep.pipeline.documents.corpus import Corpus

#: Told the number of documents found so far.
Told = Callable[[int], None]


def corpus_of(source: DocumentSource) -> Corpus | None:
    """The source as tasks list it; None if they cannot."""
    if isinstance(source, RowDocuments):
        return source
    if not isinstance(source, FilesSource) or not source.portioned:
        return None
    from instep.sources.files_corpus import FilesCorpus

    return FilesCorpus(source)


def way_to_plan(setup: DocumentAdapters, ledger: Ledger, instance: str | None) -> WayToPlan:
    """The way to plan a source as large as it was when it was recorded, if it does not tell how large it is."""
    if instance is None or not isinstance(setup.source, FilesSource) or not setup.source.portioned:
        return setup.way_to_plan(0)
    return setup.way_to_plan(ledger.documents.number(instance))


class TooMany(Exception):
    """So much was found that it is to be planned in this other way."""

    def __init__(self, way: WayToPlan) -> None:
        super().__init__(way.told)
        self.way = way


def unless_too_many(setup: DocumentAdapters, progress: Told | None) -> Told | None:
    """Watch a listing of files in this process: it raises `TooMany` when there are enough for tasks to list them."""
    if not isinstance(setup.source, FilesSource) or not setup.source.portioned:
        return progress
    asked = choice.SPARK_PLANS

    def found(number: int) -> None:
        nonlocal asked
        if progress:
            progress(number)
        while number >= asked:
            asked *= 2
            if (way := setup.way_to_plan(number)).tasks is not None:
                raise TooMany(way)

    return found
