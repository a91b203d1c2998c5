"""What the use cases need to know of one entity, wired up by `compose`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from instep.documents.embed.port import Embedder
from instep.domain.jobs import JobPart
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import SliceSizing
from instep.domain.refs import PartitionRef
from instep.engine.port import WaveProgram
from instep.sources.port import DocumentSource
from instep.targets.port import DocumentTarget


@dataclass(frozen=True, slots=True)
class EntitySetup:
    """One declared entity in its scope, with its adapters.

    `program` builds what a wave of a part runs, reading the target as of a base version. `ttl` is the time to live
    of an instance in milliseconds; `revision` says which version of the project's code runs, as far as version
    control knows. `depends_on` is what it is made from.
    """

    ref: PartitionRef
    source: DocumentSource
    source_text: str
    target: DocumentTarget
    target_name: str
    dimensions: int
    buckets: int
    sizing: SliceSizing
    priority: int
    guard: DeleteGuard
    has_transform: bool
    fingerprint: Mapping[str, str]
    ttl: int | None
    revision: Callable[[], str]
    embedder: Callable[[], Embedder]
    program: Callable[[JobPart, int], WaveProgram]
    depends_on: tuple[PartitionRef, ...] = ()

    @property
    def alias(self) -> str:
        return self.ref.entity

    def alias_of(self, generation: str) -> str | None:
        """What a generation that has a name is read by, promoted or not. `alias` is for the promoted one."""
        return f"{self.alias}@{generation}" if generation else None

    def physical(self, instance: str) -> str:
        return f"{self.alias}__{instance.replace('-', '')[:8]}"
