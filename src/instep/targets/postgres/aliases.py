"""Aliases: a view for each kind, and their moves. All views of an alias move in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from psycopg import sql

from instep.errors import Conflict, Fenced, UserError
from instep.postgres.connection import Missing, Name, Session
from instep.targets.postgres.registry import (
    ALIASES,
    EPOCHS,
    INDEXES,
    PROMOTIONS,
    columns_of,
    fitting,
    owner_of_alias,
    prepare,
)


class View(NamedTuple):
    """The view of one kind that a reader finds: columns with their types, as the server shows them, in order."""

    kind: str
    columns: Mapping[str, str]
    query: sql.Composed


def promote(
    session: Session,
    alias: str,
    physical: str | None,
    views: Sequence[View],
    taken: Callable[[str | None], str],
    *,
    epoch: int,
    scope: str = "",
) -> None:
    """See `TableTarget.promote`. `taken`: see `OwnedIndexes`."""
    # Once for each connection: an index on a topic is served every second, and what is served was made.
    if (prepared := ("prepared", session.place.schema)) not in session.memory:
        prepare(session)
        session.memory[prepared] = True
    with session.transaction():
        shown, kinds = _locked(session, alias)
        owner = taken(owner_of_alias(session, alias))
        if _again(session, alias, physical, epoch, scope):
            return
        _refuse_superseded(session, alias, shown, epoch, scope)
        _show(session, alias, kinds, views)
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
            "UPDATE {aliases} SET owner = %s, physical = %s, kinds = %s WHERE alias = %s",
            owner,
            physical,
            [view.kind for view in views],
            alias,
            aliases=session.name(ALIASES),
        )


def served(session: Session, alias: str) -> str | None:
    try:
        found = session.run("SELECT physical FROM {aliases} WHERE alias = %s", alias, aliases=session.name(ALIASES))
    except Missing:
        return None
    return found[0][0] if found else None


def shows(session: Session, alias: str) -> bool:
    """Whether all views of an alias are there."""
    try:
        found = session.run(
            "SELECT unnest(kinds) FROM {aliases} WHERE alias = %s", alias, aliases=session.name(ALIASES)
        )
    except Missing:
        return False
    return bool(found) and all(columns_of(session, _named(alias, kind)) for (kind,) in found)


def _locked(session: Session, alias: str) -> tuple[str | None, list[str]]:
    """Lock an alias to the end of the transaction; returns the index that it shows, and the kinds of its views."""
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
    """Check the epoch. Raises `Fenced` if the served index has seen a newer epoch of this partition."""
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


def _show(session: Session, alias: str, kinds: Sequence[str], views: Sequence[View]) -> None:
    wanted = {view.kind for view in views}
    for kind in kinds:
        if kind not in wanted:
            session.run("DROP VIEW IF EXISTS {view}", view=session.name(_named(alias, kind)))
    for view in views:
        _replace(session, fitting(_named(alias, view.kind)), view, ours=view.kind in kinds)


def _named(alias: str, kind: str) -> str:
    return f"{alias}__{kind}" if kind else alias


def _replace(session: Session, name: str, view: View, *, ours: bool) -> None:
    before = columns_of(session, name)
    if before and not ours:
        raise UserError(
            f"{name!r} is there, and is not a view of Instep's", where=session.place.shown, hint="Rename one of them."
        )
    readers = []
    if before and list(before.items()) != list(view.columns.items()):
        # A view cannot change its columns: it is made again. Its readers keep their rights.
        readers = _readers(session, name)
        session.run("DROP VIEW {view}", view=session.name(name))
    session.run("CREATE OR REPLACE VIEW {view} AS {query}", view=session.name(name), query=view.query)
    for reader in readers:
        who: sql.Composable = Name(reader) if reader is not None else sql.SQL("PUBLIC")
        session.run("GRANT SELECT ON {view} TO {who}", view=session.name(name), who=who)


def _readers(session: Session, view: str) -> list[str | None]:
    """Roles that may read it, besides its owner; None is PUBLIC."""
    found = session.run(
        "SELECT rolname::text FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace, "
        "aclexplode(relacl) AS granted LEFT JOIN pg_roles ON pg_roles.oid = grantee "
        "WHERE nspname = %s AND relname = %s AND privilege_type = 'SELECT' AND grantee <> relowner",
        session.place.schema,
        view,
    )
    return [each[0] for each in found]
