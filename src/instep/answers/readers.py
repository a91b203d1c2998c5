"""Readers of documents, as searches and other answers obey them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from instep.domain.filters import Condition
from instep.domain.fingerprint import READERS, column_part
from instep.domain.readers import PrincipalError, checked_principals, may_read, readable
from instep.entities.documents.provenance import DocumentProvenance
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of
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


def readable_in(setup: DocumentSetup, made_of: Mapping[str, str] | None, principals: Sequence[str]) -> Condition | None:
    """The condition of documents that these principals may find; None where everybody may find all. Raises `UserError`
    for an index that was built without this column of readers, or with another one: nobody finds anything there.
    `made_of`: its fingerprint, if that is known.
    """
    if setup.readers is None:
        return None
    made_of, now = made_of or {}, setup.fingerprint
    if any(made_of.get(part) != now[part] for part in (READERS, column_part(setup.readers.name))):
        raise UserError(
            f"{setup.ref.label}: the served index was built without the readers that are declared now, "
            "so nobody may find anything in it",
            hint="Run: instep run",
        )
    return readable(setup.readers, principals)


class Build(NamedTuple):
    """An index that is served, as the ledger knows it: its instance, the fingerprint of that, and up to when it is
    complete (ms), which is None until its first job has ended.
    """

    instance: str
    made_of: Mapping[str, str]
    watermark: int | None


def build_of(setup: DocumentSetup, ledger: Ledger, physical: str, generation: str | None) -> Build | None:
    """The build of a served index, as its checkpoint has it; or the job that builds it, since it is served shortly
    before its job has ended. None if neither is there.
    """
    unfinished = ledger.jobs.unfinished(setup.ref, generation_of(ledger, setup.ref, generation))
    part = unfinished.part(setup.ref).part if unfinished is not None else None
    # In this order: a job that has ended meanwhile has left its checkpoint.
    for each in ledger.checkpoints.of_entity(setup.ref.entity):
        if each.physical == physical:
            return Build(each.instance, each.fingerprint, each.watermark)
    if part is not None and part.physical == physical:
        return Build(part.instance, part.fingerprint, None)
    return None


def keeps_readers(setup: EntitySetup) -> bool:
    """Whether only readers of a document may know of it."""
    return isinstance(setup, DocumentSetup) and setup.readers is not None


def demand_told(
    setup: EntitySetup, ledger: Ledger, physical: str, principals: Sequence[str], generation: str | None
) -> None:
    """Check that rows of an index may be told of at all. Raises `UserError` if it was built without the readers that
    are declared: before it is known whether a row is there.
    """
    if isinstance(setup, DocumentSetup) and setup.readers is not None:
        build = build_of(setup, ledger, physical, generation)
        readable_in(setup, build.made_of if build else None, principals)


def shows(setup: EntitySetup, found: object, principals: Sequence[str]) -> bool:
    """Whether these principals may be told of a row: no otherwise than of one that does not exist."""
    if not isinstance(setup, DocumentSetup) or not isinstance(found, DocumentProvenance) or setup.readers is None:
        return True
    rows = setup.target.written(found.physical, [found.row.document_id], [setup.readers]).to_pylist()
    mine = [each[setup.readers.name] or () for each in rows if each["chunk_id"] == found.row.chunk_id]
    return bool(mine) and all(may_read(readers, principals) for readers in mine)
