"""Documents of a topic: which messages a run takes, and what they change in what is indexed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from instep.domain.manifest import Difference
from instep.domain.seen import Seen
from instep.domain.texts import duration_text
from instep.domain.topic_offsets import Offsets
from instep.entities.documents.adapters import DocumentAdapters
from instep.entities.documents.versions import record_of_touched
from instep.entities.plan_request import Found, Kind, PlanRequest
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger
from instep.sources.topic import FLAWED, WINDOW, TopicRead, TopicSource, waiting_text

if TYPE_CHECKING:
    from instep.sources.document_source import Listing

_MINUTE: Final = 60_000


@dataclass(frozen=True, slots=True)
class FollowedTopic:
    """A topic that is followed, as read from where the last job of what is served has ended, or (for a build) from its
    beginning.
    """

    topic: str
    read: TopicRead
    before: Offsets | None
    why: str
    warnings: tuple[str, ...] = ()

    @property
    def moved(self) -> bool:
        return self.read.offsets != self.before

    @property
    def listing(self) -> Listing:
        return self.read.listing

    def without_messages(self, failed: Iterable[str]) -> Listing:
        """The listing, with failures that end: messages of no document that are not in the topic any more."""
        head = f"{FLAWED}{self.topic}/"
        places = {uri: uri.removeprefix(head).split("/") for uri in failed if uri.startswith(head)}
        first = self.read.first
        gone = [uri for uri, (partition, offset) in places.items() if int(offset) < first.get(int(partition), 0)]
        return replace(self.listing, deleted=[*self.listing.deleted, *gone]) if gone else self.listing

    @property
    def seen(self) -> Seen:
        return Seen(offsets=self.read.offsets)


def follow_topic(setup: DocumentAdapters, request: PlanRequest) -> FollowedTopic | None:
    """The messages that a run takes of the source; None if that is no topic."""
    source = setup.source
    if not isinstance(source, TopicSource):
        return None
    checkpoint = request.checkpoint if request.kind is Kind.REFRESH else None
    seen = request.ledger.seen.get(checkpoint) if checkpoint else None
    before = seen.offsets if seen else None
    # A build takes all: what is served is not replaced by some of it.
    until = request.options.until
    read = source.read(before, most=WINDOW if before else None, until=until, progress=request.listing)
    why = waiting_text(read, source.topic)
    return FollowedTopic(source.topic.name, read, before, why, tuple(_missed(source, read, checkpoint, request)))


def _missed(source: TopicSource, read: TopicRead, checkpoint: Checkpoint | None, request: PlanRequest) -> Iterator[str]:
    """A warning that tombstones may be gone which nobody has read: messages were compacted, and the last look is longer
    ago than the topic keeps them.
    """
    if checkpoint is None or not read.empty:
        return
    kept, pause = source.topic.tombstones_kept(), request.ledger.present() - checkpoint.watermark
    if kept is not None and pause > kept:
        pause = pause // _MINUTE * _MINUTE
        yield (
            f"warning: topic {source.topic.name} was compacted, and keeps tombstones for {duration_text(kept)}; the "
            f"index was last complete {duration_text(pause)} ago: what was deleted in between may still be indexed; "
            "see instep run --full-refresh"
        )


def resumed(setup: DocumentAdapters, request: PlanRequest) -> Found | None:
    """A job on a topic that goes on: its messages are in its plan, and no others are looked at."""
    if request.kind is not Kind.RESUME or not isinstance(setup.source, TopicSource):
        return None
    return Found(kind=request.kind, why=request.why, unit=setup.unit)


def compared_with_touched(
    ledger: Ledger, instance: str, found: Listing, failed: Mapping[str, str], *, buckets: int, retry_failures: bool
) -> Difference:
    """The changes that messages make, compared with the records of their documents alone."""
    if not (found.documents or found.deleted):
        return Difference((), 0, 0, 0)
    import pyarrow as pa

    from instep.document_state.columns import ListedColumns, listed_columns
    from instep.document_state.difference import difference

    listed = found.documents if isinstance(found.documents, ListedColumns) else listed_columns(found.documents)
    uris = pa.array([*listed.table["uri"].to_pylist(), *found.deleted], pa.string())
    return difference(
        listed,
        record_of_touched(ledger, instance, uris),
        failed,
        complete=False,
        buckets=buckets,
        deleted=found.deleted,
        retry_failures=retry_failures,
    )
