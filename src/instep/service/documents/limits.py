"""Limits of an entity's documents: what is declared, and what is said of documents over them that are indexed."""

from __future__ import annotations

from instep.documents.limits import Limits, Oversize
from instep.project import DocumentEntity


def limits_of(entity: DocumentEntity) -> Limits:
    declared = entity.limits
    return Limits(
        declared.max_document_bytes, declared.max_line_bytes, declared.max_chunks, Oversize(declared.on_oversize)
    )
