"""The declaration and the adapters of an entity of documents, which the functions on it share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from instep.domain.document_columns import DocumentColumn
from instep.domain.jobs import JobPart
from instep.domain.manifest import DeleteGuard
from instep.domain.money import Tariff
from instep.domain.planning import SliceSizing
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.entities.setup import EntitySetup
from instep.pipeline.documents.chunk import DEFAULT_LIMITS, Limits
from instep.pipeline.documents.embed.embedder import Embedder
from instep.pipeline.documents.rerank.reranker import Reranking
from instep.pipeline.engine.engine import WaveProgram
from instep.sources.document_source import DocumentSource
from instep.targets.document_target import EQUAL, DocumentTarget, FusionWeights, SearchMode

if TYPE_CHECKING:
    from instep.entities.documents.quality import PromotionDemand
    from instep.pipeline.engine.corpus import SparkCorpus
    from instep.sources.sqs_events import SqsQueue

#: Number of documents that are read back before an index is served.
SAMPLES: Final = 20


@dataclass(frozen=True, slots=True)
class WayToPlan:
    """The place to list and compare a source: in `tasks`, or in this process. `told` says so of a large one."""

    tasks: SparkCorpus | None = None
    told: str | None = None


@dataclass(frozen=True, kw_only=True)
class DocumentAdapters(EntitySetup):
    """The setup of an entity of documents, with its adapters. `programs` makes the program of a wave of a part, which
    reads a target as of a base version. `rehearsal` tries the transform, if there is one, and describes the result.
    `readers` is the column that says who may find a document, `searched` what of it is searched by words.
    `query_embedder` makes vectors of what is searched for; `search_mode` is the way in which it is searched unless
    told, and `weights` what words and vectors count for then. `embedding_time` is that of a row, as `embedding_time_of`
    has it. `tells_weak`: its embedder is one that says which hits are weak. `context`: titles and headings are embedded
    with chunks. `reranking` puts the first hits in another order. `demand` is what a build has to find before it is
    served. `samples` is the number of documents read back before an index is served. `trial` asks the embedder for one
    vector. `demand_package` raises `UserError` if the embedder's package is not installed. `way_to_plan` looks at the
    source, as it is now; one that does not tell how much it has, has so many documents at least. `scanned_rows` is the
    number of rows that a wave has to look through, about. `planning_folder` has what waits to be planned, for as long
    as that takes. `declared_tariff`: what its embedder costs, and may cost. `cutting` says by which grammars code is
    cut, if it is.
    """

    target: DocumentTarget
    source: DocumentSource
    dimensions: int
    sizing: SliceSizing
    guard: DeleteGuard
    embedder: Callable[[], Embedder]
    query_embedder: Callable[[], Embedder]
    programs: Callable[[JobPart, int, DocumentTarget], WaveProgram]
    planning_folder: Path
    columns: Sequence[DocumentColumn] = ()
    readers: DocumentColumn | None = None
    searched: Searched = SEARCHED_BY_DEFAULT
    #: Ends of names of files that the declared parser does not read.
    unread: Collection[str] = ()
    limits: Limits = DEFAULT_LIMITS
    rehearsal: Callable[[], str] | None = None
    cutting: Callable[[], str] | None = None
    search_mode: SearchMode = "hybrid"
    weights: FusionWeights = EQUAL
    embedding_time: float = 1.0
    tells_weak: bool = False
    context: bool = False
    reranking: Callable[[], Reranking | None] = lambda: None
    demand: PromotionDemand | None = None
    samples: int = SAMPLES
    trial: Callable[[Callable[[str], None]], None] | None = None
    demand_package: Callable[[], None] = lambda: None
    way_to_plan: Callable[[int], WayToPlan] = lambda known: WayToPlan()
    scanned_rows: Callable[[], int] = int
    declared_tariff: Tariff | None = None
    #: The queue that tells what changes in the source, if one is declared.
    queue: SqsQueue | None = None
