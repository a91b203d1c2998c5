"""Transactions of the SQL ledger that go wrong: which are tried again, and what is said of the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, Row, event
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from instep.errors import InstepError, Transient, Unknown
from instep.ledger.dialects.dialect import ClaimRequest, Collision
from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up
from tests.contracts.ledger.building import VirtualClock, claim_all, job_of, plans, running


class _Faulty(SqliteDialect):
    """Claims fail, once they have had their effect, as often as `faults` says and with these errors."""

    def __init__(self) -> None:
        super().__init__(VirtualClock(), "here")
        self.faults: list[DBAPIError] = []

    def claim(self, connection: Connection, request: ClaimRequest) -> Sequence[Row[Any]]:
        claimed = super().claim(connection, request)
        if self.faults:
            raise self.faults.pop()
        return claimed

    def explain(self, error: DBAPIError, *, committing: bool = False) -> InstepError | None:
        match str(error.orig):
            case "deadlock":
                return Collision("deadlock")
            case "lost":
                return Unknown("lost") if committing else Transient("lost")
            case _:
                return None


def _error(what: str, kind: type[DBAPIError] = OperationalError) -> DBAPIError:
    return kind("statement", {}, Exception(what))


@pytest.fixture
def dialect() -> _Faulty:
    return _Faulty()


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    engine = sqlite_engine(tmp_path / "ledger.db")
    bring_up(engine, "here")
    return engine


@pytest.fixture
def ledger(engine: Engine, dialect: _Faulty) -> Iterator[Ledger]:
    ledger = Ledger(engine, dialect)
    running(ledger, plans(2))
    yield ledger
    ledger.close()


@pytest.mark.parametrize("error", [_error("deadlock"), _error("same key", IntegrityError)])
def test_a_transaction_that_collided_is_retried(ledger: Ledger, dialect: _Faulty, error: DBAPIError) -> None:
    dialect.faults = [error] * 3
    assert [each.fence for each in claim_all(ledger)] == [1, 1], "what was tried before had no effect"
    assert dialect.faults == []


def test_a_conflicting_transaction_is_retried_a_bounded_number_of_times(ledger: Ledger, dialect: _Faulty) -> None:
    before = job_of(ledger)
    dialect.faults = [_error("deadlock")] * 100
    with pytest.raises(Transient):
        claim_all(ledger)
    assert len(dialect.faults) > 80
    assert job_of(ledger) == before


def test_a_fault_of_our_own_is_raised_as_it_is(ledger: Ledger, dialect: _Faulty) -> None:
    dialect.faults = [_error("what is this?")]
    with pytest.raises(OperationalError):
        claim_all(ledger)
    dialect.faults = [_error("same key", IntegrityError)] * 100
    with pytest.raises(IntegrityError):
        claim_all(ledger)


def test_a_connection_lost_before_the_commit_had_no_effect(ledger: Ledger, dialect: _Faulty) -> None:
    dialect.faults = [_error("lost")]
    with pytest.raises(Transient):
        claim_all(ledger)
    assert dialect.faults == [], "the caller decides when to try again"
    assert len(claim_all(ledger)) == 2


def test_of_a_connection_lost_during_the_commit_nothing_is_known(ledger: Ledger, engine: Engine) -> None:
    @event.listens_for(engine, "commit")
    def lose(_: Connection) -> None:
        raise _error("lost")

    with pytest.raises(Unknown):
        ledger.workers.register("bob", kind="run", host="here", pid=1)
    with pytest.raises(Transient):
        ledger.now()
