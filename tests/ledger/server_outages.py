"""What a ledger on any real server makes of the server's death, in the midst of anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Connection, Engine, event

from instep.domain.jobs import SliceState
from instep.errors import Transient, Unknown
from instep.ledger.ledger import Ledger
from tests.contracts.ledger import (
    claim_all,
    complete_all,
    end,
    job_of,
    outcome,
    plans,
    running,
    state_of_everything,
)
from tests.ledger.server_fixtures import ServerFixtures
from tests.ledger.statements import watching
from tests.servers.ledgers import LedgerDatabase
from tests.servers.process import Server


class ServerOutages(ServerFixtures):
    def test_a_restart_between_calls_is_not_noticed(self, server: Server, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        server.restart()
        assert ledger.slices.holds(claims, "ann")
        server.restart()
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        server.restart()
        end(ledger, part)

    def test_an_outage_is_transient_and_then_over(self, server: Server, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        before = state_of_everything(ledger, part)
        server.kill()
        calls: list[Callable[[], object]] = [
            ledger.now,
            ledger.jobs.newest,
            lambda: claim_all(ledger),
            lambda: ledger.workers.heartbeat("ann", []),
            lambda: ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job"),
            ledger.sweep,
        ]
        for call in calls:
            with pytest.raises(
                Transient, match=rf"127\.0\.0\.1:{server.port}/ledger: .*(cannot be reached|was lost)"
            ) as error:
                call()
            assert server.password not in str(error.value)
        server.restart()
        assert state_of_everything(ledger, part) == before
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        end(ledger, part)

    def test_a_kill_in_mid_transaction_undoes_all_of_it(self, server: Server, watched: tuple[Ledger, Engine]) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        claims = claim_all(ledger)
        before = state_of_everything(ledger, part)
        for statement in ("'COMPLETED'", "INSERT INTO documents"):
            with _killed_at(engine, statement, server), pytest.raises(Transient, match=r"connection .* was lost"):
                ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
            server.restart()
            assert state_of_everything(ledger, part) == before
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        end(ledger, part)

    def test_a_kill_at_the_commit_is_unknown_and_the_call_can_be_repeated(
        self, server: Server, watched: tuple[Ledger, Engine]
    ) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        claims = claim_all(ledger)

        @event.listens_for(engine, "commit", once=True)
        def kill(_: Connection) -> None:
            server.kill()

        with pytest.raises(Unknown) as error:
            ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert server.password not in str(error.value)
        server.restart()
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger).slices == {SliceState.COMPLETED: 4}
        end(ledger, part)

    def test_a_kill_during_a_claim_loses_no_slice(self, server: Server, watched: tuple[Ledger, Engine]) -> None:
        ledger, engine = watched
        part = running(ledger, plans(4))
        with (
            _killed_at(engine, "UPDATE slices", server),
            pytest.raises(Unknown if self.claims_alone else Transient),
        ):
            claim_all(ledger)
        server.restart()
        complete_all(ledger, part)
        end(ledger, part)

    def test_a_server_that_hangs_is_given_up(self, server: Server, database: LedgerDatabase) -> None:
        ledger = database.open(server=self.short_lock_wait(database))
        part = running(ledger, plans(2))
        server.pause()
        with pytest.raises(Transient):
            ledger.jobs.newest()
        server.resume()
        complete_all(ledger, part)
        end(ledger, part)
        ledger.close()


@contextmanager
def _killed_at(engine: Engine, beginning: str, server: Server) -> Iterator[None]:
    """The server is killed when a statement like this is about to be sent."""

    def look(statement: str, _: object) -> None:
        if beginning in statement:
            server.kill()

    with watching(engine, look):
        yield
