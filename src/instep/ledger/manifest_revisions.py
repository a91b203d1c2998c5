"""How often the manifest of an instance was written, and which base file has its rows (see `tables.manifests`)."""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlalchemy import insert, select, update

from instep.ledger.tables import manifests
from instep.ledger.transaction import Transaction


class Manifest(NamedTuple):
    """See `tables.manifests`."""

    instance: str
    revision: int = 0
    base: str | None = None
    base_revision: int = -1


def next_revision(tx: Transaction, instance: str, *, without_base: bool) -> int:
    """The next revision of an instance's manifest, for a write. Its row is locked until that is done, so a reader of a
    revision sees all of it.
    """
    values: dict[str, Any] = {"revision": manifests.c.revision + 1}
    if without_base:
        values |= {"base": None, "base_revision": None}
    if not tx.connection.execute(update(manifests).where(manifests.c.instance == instance).values(**values)).rowcount:
        tx.connection.execute(insert(manifests).values(instance=instance, revision=1))
        return 1
    return manifest_of(tx, instance).revision


def manifest_of(tx: Transaction, instance: str) -> Manifest:
    row = tx.connection.execute(select(manifests).where(manifests.c.instance == instance)).one_or_none()
    if row is None:
        return Manifest(instance)
    return Manifest(*row) if row.base is not None else Manifest(instance, row.revision)
