"""Instep keeps search, vector and graph indexes in step with their sources, on Spark."""

from __future__ import annotations

__version__ = "0.1.0"

TYPE_CHECKING = False  # Without `typing`: nothing heavy comes before `__main__` takes care of Ctrl-C.
if TYPE_CHECKING:
    from typing import Any

    from instep.app import Instep, load
    from instep.errors import InstepError, Transient, UserError
    from instep.ledger.key_leases import KeyFailure
    from instep.pipeline.documents.function_source import ListedDocument, ListFunction, ReadDocument, ReadFunction
    from instep.pipeline.documents.functions import ChunkFunction, EmbedFunction, ParsedDocument, ParseFunction
    from instep.project import Project
    from instep.queues.consumers import Ack

_HOMES = {
    "Instep": "instep.app",
    "load": "instep.app",
    "Project": "instep.project",
    "Ack": "instep.queues.consumers",
    "KeyFailure": "instep.ledger.key_leases",
    "ChunkFunction": "instep.pipeline.documents.functions",
    "EmbedFunction": "instep.pipeline.documents.functions",
    "ListFunction": "instep.pipeline.documents.function_source",
    "ListedDocument": "instep.pipeline.documents.function_source",
    "ReadDocument": "instep.pipeline.documents.function_source",
    "ReadFunction": "instep.pipeline.documents.function_source",
    "ParseFunction": "instep.pipeline.documents.functions",
    "ParsedDocument": "instep.pipeline.documents.functions",
    "InstepError": "instep.errors",
    "Transient": "instep.errors",
    "UserError": "instep.errors",
}

__all__ = [
    "Ack",
    "ChunkFunction",
    "EmbedFunction",
    "Instep",
    "InstepError",
    "KeyFailure",
    "ListFunction",
    "ListedDocument",
    "ParseFunction",
    "ParsedDocument",
    "Project",
    "ReadDocument",
    "ReadFunction",
    "Transient",
    "UserError",
    "__version__",
    "load",
]


def __getattr__(name: str) -> Any:
    """Import on first use: `instep --help` must not pay for what it does not use."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
