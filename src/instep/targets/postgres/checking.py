"""Check that a schema can be written to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from instep.errors import Away, Transient, UserError
from instep.postgres.connection import Session
from instep.postgres.location import Location
from instep.targets.postgres import registry


@contextlib.contextmanager
def checked(place: Location) -> Iterator[Session]:
    """A session with a place that can be written, for what else there is to check. Raises `UserError`, saying why."""
    try:
        with place.session() as session:
            _demand_usable(session)
            yield session
    except Transient as error:
        raise Away(str(error), hint="Try again later.") from None


def _demand_usable(session: Session) -> None:
    ((encoding, standby),) = session.run("SELECT current_setting('server_encoding'), pg_is_in_recovery()")
    if encoding != "UTF8":
        raise UserError(
            f"the database has the encoding {encoding}, which does not hold every text",
            where=session.place.shown,
            hint="Make one with: CREATE DATABASE … ENCODING 'UTF8' TEMPLATE template0",
        )
    if standby:
        raise UserError("the server is a standby, which cannot be written", where=session.place.shown)
    registry.prepare(session)
    with session.transaction():
        probe = session.name(f"{registry.OURS}check")
        session.run("DROP TABLE IF EXISTS {probe}", probe=probe)
        session.run("CREATE TABLE {probe} (n int)", probe=probe)
        session.run("DROP TABLE {probe}", probe=probe)
