"""Aliases: a view for each kind, and who moved them when. All views of an alias move in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from instep.errors import Conflict, Fenced, UserError
from instep.targets.postgres.connection import Missing, Name, Session, names
from instep.targets.postgres.layout import (
    ALIASES,
    EPOCHS,
    INDEXES,
    PROMOTIONS,
    Index,
    columns_of,
    fitting,
    prepare,
    stored_type,
)
from instep.targets.tables import DELETED, TableSpec


def promote(session: Session, alias: str, index: Index | None, epoch: int, scope: str) -> None:
    """See `TableTarget.promote`."""
    physical = index.name if index else None
    prepare(session)
    with session.transaction():
        shown, kinds = _locked(session, alias)
        if _again(session, alias, physical, epoch, scope):
            return
        _refuse_superseded(session, alias, shown, epoch, scope)
        _show(session, alias, kinds, index)
        session.run(
            "INSERT INTO {promotions} (alias, scope, epoch, physical) VALUES (%s, %s, %s, %s) "
            "ON CONFLICT (alias, scope) DO UPDATE SET epoch = excluded.epoch, physical = excluded.physical",
            alias,
            scope,
            epoch,
            physical,
            promotions=session.name(PROMOTIONS),
        )
        session.run(
            "UPDATE {aliases} SET physical = %s, kinds = %s WHERE alias = %s",
            physical,
            [spec.kind for spec in index.specs] if index else [],
            alias,
            aliases=session.name(ALIASES),
        )


def served(session: Session, alias: str) -> str | None:
    try:
        found = session.run("SELECT physical FROM {aliases} WHERE alias = %s", alias, aliases=session.name(ALIASES))
    except Missing:
        return None
    return found[0][0] if found else None


def _locked(session: Session, alias: str) -> tuple[str | None, list[str]]:
    """What it shows, and of which kinds there are views: to the end of the transaction nobody else moves it."""
    session.run(
        "INSERT INTO {aliases} (alias) VALUES (%s) ON CONFLICT DO NOTHING", alias, aliases=session.name(ALIASES)
    )
    found = session.run(
        "SELECT physical, kinds FROM {aliases} WHERE alias = %s FOR UPDATE", alias, aliases=session.name(ALIASES)
    )
    return found[0][0], found[0][1]


def _again(session: Session, alias: str, physical: str | None, epoch: int, scope: str) -> bool:
    """Whether this very promotion was made already. Raises `Fenced` or `Conflict` if it comes too late."""
    found = session.run(
        "SELECT epoch, physical FROM {promotions} WHERE alias = %s AND scope = %s",
        alias,
        scope,
        promotions=session.name(PROMOTIONS),
    )
    for newest, before in found:
        if newest > epoch:
            raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {newest}")
        if newest == epoch and before != physical:
            raise Conflict(f"alias {alias!r}: epoch {epoch} serves {before}, so it cannot serve {physical}")
        return bool(newest == epoch)
    return False


def _refuse_superseded(session: Session, alias: str, shown: str | None, epoch: int, scope: str) -> None:
    """Raises `Fenced` if what is served has seen a newer epoch of this partition."""
    found = session.run(
        "SELECT epoch FROM {epochs} JOIN {indexes} ON id = index_id WHERE name = %s AND scope = %s AND epoch > %s",
        shown,
        scope,
        epoch,
        epochs=session.name(EPOCHS),
        indexes=session.name(INDEXES),
    )
    if found:
        raise Fenced(f"alias {alias!r}: epoch {epoch} was superseded by epoch {found[0][0]}")


def _show(session: Session, alias: str, kinds: Sequence[str], index: Index | None) -> None:
    specs = {spec.kind: spec for spec in index.specs} if index else {}
    for kind in kinds:
        if kind not in specs:
            session.run("DROP VIEW IF EXISTS {view}", view=session.name(_view(alias, kind)))
    for spec in specs.values():
        assert index is not None
        _replace(session, fitting(_view(alias, spec.kind)), spec, index.name, ours=spec.kind in kinds)


def _view(alias: str, kind: str) -> str:
    return f"{alias}__{kind}" if kind else alias


def _replace(session: Session, view: str, spec: TableSpec, physical: str, *, ours: bool) -> None:
    before = columns_of(session, view)
    if before and not ours:
        raise UserError(
            f"{view!r} is there, and is not a view of Instep's", where=session.place.shown, hint="Rename one of them."
        )
    shown = {each.name: stored_type(each.type) for each in spec.all_columns if each.name != DELETED}
    readers = []
    if before and list(before.items()) != list(shown.items()):
        # A view cannot change its columns. Who could read it shall go on.
        readers = _readers(session, view)
        session.run("DROP VIEW {view}", view=session.name(view))
    session.run(
        "CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {table} WHERE NOT {deleted}",
        view=session.name(view),
        columns=names(list(shown)),
        table=session.name(spec.table(physical)),
        deleted=Name(DELETED),
    )
    for reader in readers:
        who: sql.Composable = Name(reader) if reader is not None else sql.SQL("PUBLIC")
        session.run("GRANT SELECT ON {view} TO {who}", view=session.name(view), who=who)


def _readers(session: Session, view: str) -> list[str | None]:
    """Roles that may read it, besides its owner; None is everybody."""
    found = session.run(
        "SELECT rolname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace, "
        "aclexplode(relacl) AS granted LEFT JOIN pg_roles ON pg_roles.oid = grantee "
        "WHERE nspname = %s AND relname = %s AND privilege_type = 'SELECT' AND grantee <> relowner",
        session.place.schema,
        view,
    )
    return [each[0] for each in found]
