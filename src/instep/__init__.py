"""Instep keeps search, vector and graph indexes in step with their sources, on Spark."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # Without `typing`: nothing heavy comes before `__main__` takes care of Ctrl-C.
if TYPE_CHECKING:
    from instep.answers.answer_list import Answers
    from instep.answers.buckets import Buckets
    from instep.answers.checkpoints import Checkpoint
    from instep.answers.cluster import ClusterState
    from instep.answers.configuration import Setting
    from instep.answers.differences import Comparison
    from instep.answers.doctor import Finding
    from instep.answers.hits import Hits
    from instep.answers.instances import Change, Instance
    from instep.answers.job_feed import JobWatch
    from instep.answers.job_log import LogLine
    from instep.answers.jobs import Job, Worker
    from instep.answers.lineage import Lineage, Moment
    from instep.answers.overview import Failure, FailureGroup, Overview
    from instep.answers.plan import Plan
    from instep.answers.quality import Quality
    from instep.answers.reconciliations import Reconciliation
    from instep.answers.runs import Runs
    from instep.answers.search import FacetCount, Hit
    from instep.answers.slices import Grid, Slice
    from instep.answers.status import Matrix, Partition
    from instep.answers.wants import Letter, Want
    from instep.answers.why import Provenance
    from instep.app import Instep, load
    from instep.app.queues import PendingQueue
    from instep.domain.counts import Counts
    from instep.domain.jobs import JobState, SliceState
    from instep.domain.refs import PartitionRef, Scope
    from instep.domain.settings import JobSettings
    from instep.errors import Away, InstepError, Interrupted, Missing, Transient, UpstreamMissing, UserError
    from instep.jobs.adoption import Adoption
    from instep.jobs.entity_result import EntityResult
    from instep.jobs.garbage_collection import Garbage
    from instep.jobs.namespaces import Deletion
    from instep.jobs.promote import Promotion
    from instep.ledger.failures import FailurePlace
    from instep.ledger.jobs import JobPlace
    from instep.ledger.key_leases import KeyFailure
    from instep.ledger.slices import SlicePlace
    from instep.ledger.verification import Verified
    from instep.pipeline.documents.function_source import ListedDocument, ListFunction, ReadDocument, ReadFunction
    from instep.pipeline.documents.functions import ChunkFunction, EmbedFunction, ParsedDocument, ParseFunction
    from instep.pipeline.documents.rerank.function import RerankFunction
    from instep.project import Project
    from instep.queues.consumers import Ack
    from instep.requests.job_requests import Asked
    from instep.targets.document_target import DocumentTarget, SearchMode
    from instep.targets.table_target import TableTarget
    from instep.telemetry.bar_progress import Bars
    from instep.telemetry.progress import Progress

_HOMES = {
    "instep.answers.answer_list": ("Answers",),
    "instep.answers.buckets": ("Buckets",),
    "instep.answers.checkpoints": ("Checkpoint",),
    "instep.answers.cluster": ("ClusterState",),
    "instep.answers.configuration": ("Setting",),
    "instep.answers.differences": ("Comparison",),
    "instep.answers.doctor": ("Finding",),
    "instep.answers.hits": ("Hits",),
    "instep.answers.instances": (
        "Change",
        "Instance",
    ),
    "instep.answers.job_feed": ("JobWatch",),
    "instep.answers.job_log": ("LogLine",),
    "instep.answers.jobs": (
        "Job",
        "Worker",
    ),
    "instep.answers.lineage": (
        "Lineage",
        "Moment",
    ),
    "instep.answers.overview": (
        "Failure",
        "FailureGroup",
        "Overview",
    ),
    "instep.answers.plan": ("Plan",),
    "instep.answers.quality": ("Quality",),
    "instep.answers.reconciliations": ("Reconciliation",),
    "instep.answers.runs": ("Runs",),
    "instep.answers.search": (
        "FacetCount",
        "Hit",
    ),
    "instep.answers.slices": (
        "Grid",
        "Slice",
    ),
    "instep.answers.status": (
        "Matrix",
        "Partition",
    ),
    "instep.answers.wants": (
        "Letter",
        "Want",
    ),
    "instep.answers.why": ("Provenance",),
    "instep.app": (
        "Instep",
        "load",
    ),
    "instep.app.queues": ("PendingQueue",),
    "instep.domain.counts": ("Counts",),
    "instep.domain.jobs": (
        "JobState",
        "SliceState",
    ),
    "instep.domain.refs": (
        "PartitionRef",
        "Scope",
    ),
    "instep.domain.settings": ("JobSettings",),
    "instep.errors": (
        "Away",
        "InstepError",
        "Interrupted",
        "Missing",
        "Transient",
        "UpstreamMissing",
        "UserError",
    ),
    "instep.jobs.adoption": ("Adoption",),
    "instep.jobs.garbage_collection": ("Garbage",),
    "instep.jobs.namespaces": ("Deletion",),
    "instep.jobs.promote": ("Promotion",),
    "instep.jobs.entity_result": ("EntityResult",),
    "instep.ledger.failures": ("FailurePlace",),
    "instep.ledger.jobs": ("JobPlace",),
    "instep.ledger.key_leases": ("KeyFailure",),
    "instep.ledger.slices": ("SlicePlace",),
    "instep.ledger.verification": ("Verified",),
    "instep.pipeline.documents.function_source": (
        "ListFunction",
        "ListedDocument",
        "ReadDocument",
        "ReadFunction",
    ),
    "instep.pipeline.documents.functions": (
        "ChunkFunction",
        "EmbedFunction",
        "ParseFunction",
        "ParsedDocument",
    ),
    "instep.pipeline.documents.rerank.function": ("RerankFunction",),
    "instep.project": ("Project",),
    "instep.queues.consumers": ("Ack",),
    "instep.requests.job_requests": ("Asked",),
    "instep.targets.document_target": (
        "DocumentTarget",
        "SearchMode",
    ),
    "instep.targets.table_target": ("TableTarget",),
    "instep.telemetry.bar_progress": ("Bars",),
    "instep.telemetry.progress": ("Progress",),
}

__all__ = [
    "Ack",
    "Adoption",
    "Answers",
    "Asked",
    "Away",
    "Bars",
    "Buckets",
    "Change",
    "Checkpoint",
    "ChunkFunction",
    "ClusterState",
    "Comparison",
    "Counts",
    "Deletion",
    "DocumentTarget",
    "EmbedFunction",
    "EntityResult",
    "FacetCount",
    "Failure",
    "FailureGroup",
    "FailurePlace",
    "Finding",
    "Garbage",
    "Grid",
    "Hit",
    "Hits",
    "Instance",
    "Instep",
    "InstepError",
    "Interrupted",
    "Job",
    "JobPlace",
    "JobSettings",
    "JobState",
    "JobWatch",
    "KeyFailure",
    "Letter",
    "Lineage",
    "ListFunction",
    "ListedDocument",
    "LogLine",
    "Matrix",
    "Missing",
    "Moment",
    "Overview",
    "ParseFunction",
    "ParsedDocument",
    "Partition",
    "PartitionRef",
    "PendingQueue",
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
    "Setting",
    "Slice",
    "SlicePlace",
    "SliceState",
    "TableTarget",
    "Transient",
    "UpstreamMissing",
    "UserError",
    "Verified",
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
