"""A source of documents as it is listed and compared with what is recorded of an instance, here or in tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from instep.document_state.columns import listed_columns
from instep.domain.manifest import Difference
from instep.domain.promotion_rules import Tally
from instep.entities.documents.adapters import DocumentAdapters, WayToPlan
from instep.entities.documents.comparing import compared, in_columns, left_out, record_of
from instep.entities.documents.corpora import TooMany, corpus_of, unless_too_many, way_to_plan
from instep.entities.documents.listings import Known, list_source
from instep.ledger.ledger import Ledger
from instep.sources.document_source import Listing

if TYPE_CHECKING:
    from pathlib import Path

    from instep.document_state.pieces import Recorded
    from instep.pipeline.documents.corpus import Corpus
    from instep.pipeline.engine.corpus import SparkCorpus


class ListedSource:
    """The source as seen from instances: listed in this process once, or in tasks for each. `known`: what is recorded
    when it is listed. `listed`: it was already.
    """

    def __init__(
        self,
        setup: DocumentAdapters,
        ledger: Ledger,
        known: Known,
        listing: Callable[[int], None] | None = None,
        listed: Listing | None = None,
    ) -> None:
        self._setup, self._ledger, self._known = setup, ledger, known
        self._listing, self._listed = listing, listed
        self._way: WayToPlan | None = None
        self.warnings: list[str] = []

    @property
    def way(self) -> WayToPlan:
        """Chosen at the first look: it may take a count of the rows."""
        if self._way is None:
            self._way = way_to_plan(self._setup, self._ledger, self._known.instance)
        return self._way

    @property
    def told(self) -> str | None:
        """The place of a look at all of it, and the reason; None without one."""
        return self._way.told if self._way else None

    def _here(self) -> Listing | None:
        """The source as listed in this process; None where tasks do that."""
        if self._listed is None and self.way.tasks is None:
            told = unless_too_many(self._setup, self._listing)
            try:
                listed = list_source(self._setup, self._ledger, self._known, told)
                self._listed = listed.with_empty_folders() if listed.nowhere and self._known.allows_empty() else listed
            except TooMany as found:
                self._way = found.way
        return self._listed

    def compared(
        self, instance: str | None, failed: Mapping[str, str], *, buckets: int, retry_failures: bool = False
    ) -> tuple[Listing, Difference]:
        """See `compared`."""
        if (here := self._here()) is not None:
            return compared(self._ledger, instance, here, failed, buckets=buckets, retry_failures=retry_failures)
        return self._in_tasks(instance, failed, buckets, retry_failures=retry_failures)

    def left_out(self, instance: str, *, buckets: int) -> tuple[Listing, Difference]:
        """See `left_out`."""
        if (here := self._here()) is not None:
            return left_out(self._ledger, instance, here, buckets=buckets)
        return self._in_tasks(instance, {}, buckets, of_build=True)  # No row is renamed, and nothing in a store.

    def tally(self, served: str | None, failures: Mapping[str, str]) -> Tally:
        """The numbers by which a build of all that is listed would be judged, if each document that has failed at this
        version fails again.
        """
        if (here := self._here()) is None:
            tasks, corpus = self._tasks()
            return tasks.tally(corpus, self._recording(served), failures)
        from instep.document_state.losses import failing, tally

        listed = in_columns(here) or listed_columns(here.documents)
        return tally(record_of(self._ledger, served).columns, listed.table, failing(listed.table, failures))

    def _in_tasks(
        self,
        instance: str | None,
        failed: Mapping[str, str],
        buckets: int,
        *,
        retry_failures: bool = False,
        of_build: bool = False,
    ) -> tuple[Listing, Difference]:
        tasks, corpus = self._tasks()
        return tasks.compared(
            corpus,
            self._recording(instance),
            failed,
            buckets=buckets,
            retry_failures=retry_failures,
            of_build=of_build,
        )

    def _tasks(self) -> tuple[SparkCorpus, Corpus]:
        corpus = corpus_of(self._setup.source)
        assert self.way.tasks is not None, "asked for"
        assert corpus is not None, "what tasks can list"
        return self.way.tasks, corpus

    def _recording(self, instance: str | None) -> Callable[[Path, bool], Recorded | None]:
        def recording(folder: Path, afresh: bool) -> Recorded | None:
            if instance is None:
                return None
            found = self._ledger.documents.in_pieces(instance, folder, afresh=afresh)
            if afresh or found.lost:
                self.warnings.append(
                    "a file with the records of its documents is lost or damaged: all records were read from the ledger"
                )
            return found

        return recording
