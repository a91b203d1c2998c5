"""Revisions of the manifest of an instance, and the base file that has its rows up to one (see `tables.manifests`)."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import insert, select, update

from instep.ledger.tables import manifests
from instep.ledger.transaction import Transaction


class Manifest(NamedTuple):
    """See `tables.manifests`."""

    instance: str
    revision: int = 0
    base: str | None = None
    base_revision: int = -1


def next_revision(tx: Transaction, instance: str) -> Manifest:
    """The manifest of an instance at its next revision, for a write. Its row is locked until that is done, so a reader
    of a revision sees all of it.
    """
    later = update(manifests).where(manifests.c.instance == instance).values(revision=manifests.c.revision + 1)
    if tx.connection.execute(later).rowcount:
        return manifest_of(tx, instance)
    tx.connection.execute(insert(manifests).values(instance=instance, revision=1))
    return Manifest(instance, 1)


def manifest_of(tx: Transaction, instance: str) -> Manifest:
    row = tx.connection.execute(select(manifests).where(manifests.c.instance == instance)).one_or_none()
    if row is None:
        return Manifest(instance)
    return Manifest(*row) if row.base is not None else Manifest(instance, row.revision)
