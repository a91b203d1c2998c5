"""Sessions with Spark Connect servers: connecting, and an isolated copy, so that code of sessions is kept apart."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from instep.error_transport import explained, first_line
from instep.errors import Away, Transient, UserError
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.master import TRY_LATER
from instep.pipeline.engine.settings import SparkSettings, without_token

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The packages that PySpark needs for Connect.
_CONNECT_NEEDS = ("pandas", "grpc", "grpc_status")

#: How long a Connect server may take for the first answers, in seconds.
ANSWER_SECONDS = 10.0


def connect(address: str, settings: SparkSettings) -> SparkSession:
    """A session with a Connect server, in an isolated copy if the server can make one. Raises `UserError` when a
    package is missing or the server refuses, and `Away` when none answers.
    """
    missing = [name for name in _CONNECT_NEEDS if find_spec(name) is None]
    if missing:
        raise UserError(
            f"Spark Connect needs packages that are not installed ({', '.join(missing)})",
            hint="Install them: pip install 'instep[connect]'",
        )
    where = without_token(address)
    try:
        session = sparkapi.connect(address)
    except Exception as error:
        raise UserError(f"this is not an address of Spark Connect: {first_line(error)}", where=where) from error
    failed: list[Exception] = []
    isolated: list[str | None] = []

    def first_calls() -> None:
        try:
            # A call over the wire: an absent server is found now, not in mid-wave.
            _ = session.version
            for key, value in settings.config.items():
                if session.conf.isModifiable(key):
                    session.conf.set(key, value)
            isolated.append(sparkapi.isolated_copy(session))
        except Exception as error:
            failed.append(error)

    through = sparkapi.in_time(ANSWER_SECONDS, first_calls)
    if through and not failed:
        (copy,) = isolated
        if copy is None:
            return session
        sparkapi.stop(session)
        return sparkapi.connect(address, copy)
    sparkapi.stop(session, unheard=True)
    if not failed:
        raise Away(f"Spark Connect does not answer within {ANSWER_SECONDS:.0f} s", where=where, hint=TRY_LATER)
    found = explained(failed[0])
    if isinstance(found, UserError):
        raise UserError(f"Spark Connect cannot be used: {found.what}", where=where, hint=found.hint) from failed[0]
    if isinstance(found, Transient):
        why = str(found).removeprefix("Spark is out of reach: ")
        raise Away(f"Spark Connect does not answer: {why[:300]}", where=where, hint=TRY_LATER) from failed[0]
    raise UserError(f"Spark Connect refuses: {first_line(found)}", where=where) from failed[0]
