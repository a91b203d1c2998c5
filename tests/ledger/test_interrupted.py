"""Ctrl-C in the middle of a statement of SQLite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from instep.ledger.dialects.sqlite import memory_engine, sqlite_engine

UPDATE = "UPDATE numbers SET n = n + 1 RETURNING n"


@pytest.fixture(params=["file", "memory"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    made = sqlite_engine(tmp_path / "ledger.db", busy_seconds=0.1) if request.param == "file" else memory_engine()
    with made.execution_options(write=True).begin() as connection:
        connection.execute(text("CREATE TABLE numbers (n INTEGER)"))
        connection.execute(text("INSERT INTO numbers VALUES (1), (2)"))
    return made


def interrupted(engine: Engine, **options: Any) -> pytest.ExceptionInfo[KeyboardInterrupt]:
    """Run the update, and press Ctrl-C before its rows are read. Returns what refers to all frames."""

    def press(*_: object) -> None:
        raise KeyboardInterrupt

    event.listen(engine, "after_cursor_execute", press)
    try:
        with pytest.raises(KeyboardInterrupt) as found, engine.execution_options(**options).begin() as connection:
            connection.execute(text(UPDATE)).all()
    finally:
        event.remove(engine, "after_cursor_execute", press)
    return found


@pytest.mark.parametrize("options", [{}, {"write": True}])
def test_what_ctrl_c_interrupts_keeps_no_lock(engine: Engine, options: dict[str, Any]) -> None:
    found = interrupted(engine, **options)
    with engine.execution_options(write=True).begin() as connection:
        assert connection.execute(text(UPDATE)).scalars().all() in ([2, 3], [3, 4])
    assert found.traceback, "it is still there"


def test_a_transaction_that_ctrl_c_interrupts_is_rolled_back(engine: Engine) -> None:
    interrupted(engine, write=True)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT n FROM numbers ORDER BY n")).scalars().all() == [1, 2]
