"""A session of ClickHouse in this process may have settings of its own, which are kept with its connection."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.clickhouse.location import Location
from instep.clickhouse.session import Overflow, Session, records


def _asked(session: Session) -> tuple[str, str]:
    (row,) = records(
        session, "SELECT getSetting('log_comment') AS said, toString(getSetting('max_threads')) AS threads"
    )
    return row["said"], row["threads"]


def test_settings_hold_for_their_sessions_and_for_no_others(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path))
    mine: dict[str, str | int] = {"log_comment": "it's \\ mine", "max_threads": 1}
    with place.session() as plain:
        before = _asked(plain)
    for _ in range(2):
        with place.session(mine) as session, place.session() as plain:
            assert _asked(session) == ("it's \\ mine", "1")
            assert _asked(session.under({"max_threads": 2})) == ("it's \\ mine", "2")
            assert _asked(session) == ("it's \\ mine", "1")
            assert _asked(plain) == before
    with place.session({"max_threads": 1}) as session:
        assert _asked(session) == (before[0], "1")


def test_limits_hold_after_a_failed_statement(tmp_path: Path) -> None:
    place = Location.of(str(tmp_path))
    scarce: dict[str, str | int] = {"max_memory_usage": 1_000_000}
    for _ in range(2):
        with pytest.raises(Overflow), place.session(scarce) as session:
            session.arrow("SELECT groupArray(number) FROM numbers(10000000)")
    with place.session() as session:
        assert records(session, "SELECT uniqExact(number) AS count FROM numbers(100000)") == [{"count": 100_000}]
