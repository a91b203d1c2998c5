"""Instep keeps search, vector and graph indexes in step with their sources, on Spark."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # Without `typing`: nothing heavy comes before `__main__` takes care of Ctrl-C.
if TYPE_CHECKING:
    from instep.answers.answer import Answers
    from instep.answers.buckets import Buckets
    from instep.answers.differences import Comparison
    from instep.answers.doctor import Finding
    from instep.answers.hits import Hits
    from instep.answers.instances import Change, Instance
    from instep.answers.jobs import Job, Worker
    from instep.answers.lineage import Lineage, Moment
    from instep.answers.overview import Failure
    from instep.answers.plan import Plan
    from instep.answers.quality import Quality
    from instep.answers.reconciliations import Reconciliation
    from instep.answers.results import Runs
    from instep.answers.search import FacetCount, Hit
    from instep.answers.status import Partition
    from instep.answers.wants import Want
    from instep.answers.why import Provenance
    from instep.app import Instep, load
    from instep.domain.counts import Counts
    from instep.domain.refs import PartitionRef, Scope
    from instep.domain.settings import JobSettings
    from instep.errors import Away, InstepError, Interrupted, Missing, Transient, UpstreamMissing, UserError
    from instep.jobs.promote import Promotion
    from instep.jobs.run import EntityResult
    from instep.ledger.key_leases import KeyFailure
    from instep.pipeline.documents.function_source import ListedDocument, ListFunction, ReadDocument, ReadFunction
    from instep.pipeline.documents.functions import ChunkFunction, EmbedFunction, ParsedDocument, ParseFunction
    from instep.pipeline.documents.rerank.function import RerankFunction
    from instep.project import Project
    from instep.queues.consumers import Ack
    from instep.targets.document_target import DocumentTarget, SearchMode
    from instep.targets.table_target import TableTarget
    from instep.telemetry.bar_progress import Bars
    from instep.telemetry.progress import Progress

_HOMES = {
    "instep.answers.answer": ("Answers",),
    "instep.answers.buckets": ("Buckets",),
    "instep.answers.differences": ("Comparison",),
    "instep.answers.doctor": ("Finding",),
    "instep.answers.hits": ("Hits",),
    "instep.answers.instances": ("Change", "Instance"),
    "instep.answers.jobs": ("Job", "Worker"),
    "instep.answers.lineage": ("Lineage", "Moment"),
    "instep.answers.overview": ("Failure",),
    "instep.answers.plan": ("Plan",),
    "instep.answers.quality": ("Quality",),
    "instep.answers.reconciliations": ("Reconciliation",),
    "instep.answers.results": ("Runs",),
    "instep.answers.search": ("FacetCount", "Hit"),
    "instep.answers.status": ("Partition",),
    "instep.answers.wants": ("Want",),
    "instep.answers.why": ("Provenance",),
    "instep.app": ("Instep", "load"),
    "instep.telemetry.bar_progress": ("Bars",),
    "instep.domain.counts": ("Counts",),
    "instep.domain.refs": ("PartitionRef", "Scope"),
    "instep.domain.settings": ("JobSettings",),
    "instep.errors": ("Away", "InstepError", "Interrupted", "Missing", "Transient", "UpstreamMissing", "UserError"),
    "instep.jobs.promote": ("Promotion",),
    "instep.jobs.run": ("EntityResult",),
    "instep.ledger.key_leases": ("KeyFailure",),
    "instep.pipeline.documents.function_source": ("ListFunction", "ListedDocument", "ReadDocument", "ReadFunction"),
    "instep.pipeline.documents.rerank.function": ("RerankFunction",),
    "instep.pipeline.documents.functions": ("ChunkFunction", "EmbedFunction", "ParseFunction", "ParsedDocument"),
    "instep.project": ("Project",),
    "instep.queues.consumers": ("Ack",),
    "instep.targets.document_target": ("DocumentTarget", "SearchMode"),
    "instep.targets.table_target": ("TableTarget",),
    "instep.telemetry.progress": ("Progress",),
}

__all__ = [
    "Ack",
    "Answers",
    "Away",
    "Bars",
    "Buckets",
    "Change",
    "ChunkFunction",
    "Comparison",
    "Counts",
    "DocumentTarget",
    "EmbedFunction",
    "EntityResult",
    "FacetCount",
    "Failure",
    "Finding",
    "Hit",
    "Hits",
    "Instance",
    "Instep",
    "InstepError",
    "Interrupted",
    "Job",
    "JobSettings",
    "KeyFailure",
    "Lineage",
    "ListFunction",
    "ListedDocument",
    "Missing",
    "Moment",
    "ParseFunction",
    "ParsedDocument",
    "Partition",
    "PartitionRef",
    "Plan",
    "Progress",
    "Project",
    "Promotion",
    "Provenance",
    "Quality",
    "ReadDocument",
    "ReadFunction",
    "Reconciliation",
    "RerankFunction",
    "Runs",
    "Scope",
    "SearchMode",
    "TableTarget",
    "Transient",
    "UpstreamMissing",
    "UserError",
    "Want",
    "Worker",
    "__version__",
    "load",
]


if not TYPE_CHECKING:  # Else type checkers would take any name for one of ours.

    def __getattr__(name: str) -> object:
        """Import on first use: `instep --help` must not pay for what it does not use."""
        for home, names in _HOMES.items():
            if name in names:
                from importlib import import_module

                return getattr(import_module(home), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
