"""Checks of `instep doctor` for a document entity."""

from __future__ import annotations

from typing import TYPE_CHECKING

from instep.domain.amounts import amount
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import probe

if TYPE_CHECKING:
    from instep.entities.documents.setup import DocumentSetup


def source(setup: DocumentSetup) -> str:
    found = setup.source.list()
    if not found.complete:
        raise UserError(
            f"{amount(len(found.documents), 'document')} found; not all of the source can be read: {found.problems[0]}",
            hint="What may be there is not deleted from the index until it can be.",
        )
    if not found.documents:
        raise UserError(f"no documents match in {setup.source_text}", hint="Look at `path`, `include` and `exclude`.")
    return f"{amount(len(found.documents), 'document')} in {setup.source_text}"


def embedder(setup: DocumentSetup) -> str:
    probe(setup.embedder())
    return f"{setup.dimensions} dimensions"
