"""Readers of documents, as searches and other answers obey them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from instep.domain.filters import Condition
from instep.domain.fingerprint import COLUMN
from instep.domain.readers import PrincipalError, checked_principals, may_read, readable
from instep.entities.documents.provenance import DocumentProvenance
from instep.entities.documents.setup import DocumentSetup
from instep.entities.setup import EntitySetup
from instep.errors import UserError
from instep.ledger.ledger import Ledger


def as_principals(principals: Iterable[str]) -> tuple[str, ...]:
    """Raises `UserError` for a text that names none."""
    try:
        return checked_principals(principals)
    except PrincipalError as error:
        raise UserError(
            str(error), hint="Name people and groups as documents do, such as alice or group:ops."
        ) from None


def readable_by(setup: DocumentSetup, ledger: Ledger, physical: str, principals: Sequence[str]) -> Condition | None:
    """The condition of documents that these principals may find; None where everybody may find all. Raises `UserError`
    for an index that was built without this column of readers, or with another one: nobody finds anything there.
    """
    if setup.readers is None:
        return None
    part = f"{COLUMN} {setup.readers.name}"
    built = [each for each in ledger.checkpoints.of_entity(setup.ref.entity) if each.physical == physical]
    if not built or built[0].fingerprint.get(part) != setup.fingerprint.get(part):
        raise UserError(
            f"{setup.ref.label}: what is served was built without the readers that are declared now: "
            "nobody may find anything in it",
            hint="Run: instep run",
        )
    return readable(setup.readers, principals)


def shows(setup: EntitySetup, ledger: Ledger, found: object, principals: Sequence[str]) -> bool:
    """Whether these principals may be told of a row: no otherwise than of one that does not exist."""
    if not isinstance(setup, DocumentSetup) or not isinstance(found, DocumentProvenance) or setup.readers is None:
        return True
    readable_by(setup, ledger, found.physical, principals)
    rows = setup.target.written(found.physical, [found.row.document_id], [setup.readers]).to_pylist()
    mine = [each[setup.readers.name] or () for each in rows if each["chunk_id"] == found.row.chunk_id]
    return bool(mine) and all(may_read(readers, principals) for readers in mine)
