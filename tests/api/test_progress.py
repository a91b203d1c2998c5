"""The channel as clients have it: what they are told, when, and from where on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed

from instep.api import progress, progress_feed
from instep.domain.jobs import JobState
from tests.api.progress_server import Channel, served_channel
from tests.cli import ledgers
from tests.cli.ledgers import ANN, JOB
from tests.waiting import until

OTHER = "1f0c9999-bbbb-4000-8000-000000000002"
NEVER = 3_600.0


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Iterator[Channel]:
    monkeypatch.setattr(progress_feed, "CHANGE_SECONDS", 0.01)
    with served_channel() as channel:
        yield channel


@pytest.fixture
def only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress alone is never told."""
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", NEVER)


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_feed, "PROGRESS_SECONDS", 0.02)


def status(message: dict[str, Any]) -> object:
    return message["data"] and message["data"]["status"]


@pytest.mark.usefixtures("often")
def test_progress_of_a_job_that_runs_is_reported_again_and_again(channel: Channel) -> None:
    (part,) = ledgers.begin(channel.ledger, slices=4)
    ledgers.complete(channel.ledger, part, 1, failed=2)
    with channel.listening() as ear:
        first, second = ear.message(), ear.message()
        assert (
            first["data"]
            == second["data"]
            == {
                "status": "RUNNING",
                "phase": "waves",
                "stats": {
                    "jobStats": {"totalRecords": 20, "successRecords": 3, "failedRecords": 2},
                    "entityStats": {"Document": {"totalRecords": 20, "successRecords": 3, "failedRecords": 2}},
                },
                "rate": None,
                "secondsLeft": None,
                "slices": {"PENDING": 3, "PROCESSING": 0, "COMPLETED": 1, "FAILED": 0, "CANCELLED": 0},
            }
        )
        assert (first["channel"], first["job"], first["at"]) == ("searchIndexJobStatus", JOB, channel.ledger.now())
        assert second["seq"] == first["seq"] + 1
        ledgers.complete(channel.ledger, part, 3)
        ear.until(lambda message: message["data"]["slices"]["COMPLETED"] == 4)


@pytest.mark.usefixtures("only_changes")
def test_changes_of_state_are_reported_at_once(channel: Channel) -> None:
    with channel.listening() as ear:
        nothing = ear.message()
        assert (nothing["job"], nothing["data"], nothing["error"]) == (None, None, None)
        looks = channel.ledger.asked["marks"] + 3
        until(lambda: channel.ledger.asked["marks"] >= looks)
        ledgers.register(channel.ledger, ANN)
        channel.ledger.jobs.begin(JOB, ANN, {})
        planned = ear.message()
        assert (planned["job"], status(planned)) == (JOB, "INITIALIZING")
        assert planned["data"]["stats"]["jobStats"]["totalRecords"] is None, "unknown yet"
        channel.ledger.jobs.discard(JOB)
        gone = ear.message()
        assert (gone["job"], gone["data"]) == (JOB, None)
        one, two = ledgers.begin(channel.ledger, job_id=OTHER, entities=["Document", "Ticket"], slices=1)
        ear.until(lambda message: status(message) == "RUNNING")
        channel.ledger.clock.sleep(1)
        ledgers.complete(channel.ledger, one, 1, job_id=OTHER)
        ledgers.finish(channel.ledger, one, JobState.COMPLETED, job_id=OTHER)
        part_ended = ear.until(lambda message: message["data"]["slices"]["COMPLETED"] == 1)
        assert status(part_ended) == "RUNNING"
        ledgers.complete(channel.ledger, two, 1, failed=1, job_id=OTHER)
        ledgers.finish(channel.ledger, two, JobState.COMPLETED_WITH_ERRORS, job_id=OTHER)
        # It may be told once more that it runs: a look may have seen what happened after its own beginning.
        ended = ear.until(lambda message: status(message) != "RUNNING")
        assert status(ended) == "COMPLETED_WITH_ERRORS"


@pytest.mark.usefixtures("only_changes")
def test_many_clients_get_the_same_from_one_reader(channel: Channel) -> None:
    ledgers.begin(channel.ledger)
    with ExitStack() as stack:
        ears = [stack.enter_context(channel.listening()) for _ in range(30)]
        assert len({ear.text() for ear in ears}) == 1
        assert channel.ledger.asked["get"] == 1
        ledgers.stop(channel.ledger)
        assert len({ear.text() for ear in ears}) == 1
        assert channel.ledger.asked["get"] == 2


@pytest.mark.usefixtures("often")
def test_without_clients_nothing_is_read(channel: Channel) -> None:
    (part,) = ledgers.begin(channel.ledger, slices=1)
    assert not channel.ledger.asked["open"]
    with channel.listening() as ear:
        ear.message()
    until(lambda: channel.ledger.asked["close"] == 1)
    before = channel.ledger.asked.copy()
    ledgers.complete(channel.ledger, part, 1)
    ledgers.finish(channel.ledger, part, JobState.COMPLETED)
    assert channel.ledger.asked == before
    with channel.listening() as ear:
        assert status(ear.message()) == "COMPLETED", "who comes is never told what was before"


@pytest.mark.usefixtures("only_changes")
def test_a_client_that_comes_back_gets_the_messages_it_missed(channel: Channel) -> None:
    ledgers.register(channel.ledger, ANN)
    with channel.listening() as stays:
        stays.message()
        channel.ledger.jobs.begin(JOB, ANN, {})
        with channel.listening() as ear:
            last = ear.until(lambda message: message["job"] == JOB)["seq"]
        while stays.message()["seq"] < last:
            pass
        channel.ledger.jobs.request_stop(JOB)
        missed = [stays.text()]
        channel.ledger.jobs.begin(OTHER, ANN, {})
        missed.append(stays.text())
        with channel.listening(after=last) as ear:
            assert [ear.text(), ear.text()] == missed
        with channel.listening(after=last, job=OTHER) as ear:
            assert ear.text() == missed[1]
        with channel.listening(after=1) as ear:
            assert ear.text() == missed[1], "of what is not kept any more, the newest is told"


@pytest.mark.usefixtures("only_changes")
def test_a_job_that_ended_long_ago_is_sent_to_a_client_that_asks_for_it(channel: Channel) -> None:
    ledgers.begin(channel.ledger)
    ledgers.stop(channel.ledger)
    ledgers.begin(channel.ledger, job_id=OTHER, entities=["Ticket"])
    with channel.listening(job=JOB) as ear, channel.listening() as other:
        assert status(ear.message()) == "STOPPED"
        assert other.message()["job"] == OTHER
        ledgers.stop(channel.ledger, OTHER)
        assert (other.message()["job"]) == OTHER
        channel.ledger.jobs.start(JOB)
        resumed = ear.message()
        assert (resumed["job"], status(resumed)) == (JOB, "RUNNING")


@pytest.mark.usefixtures("often")
def test_a_ledger_that_is_away_is_reported_once_and_when_it_is_back(channel: Channel) -> None:
    with channel.listening() as ear:
        ear.message()
        channel.ledger.away = True
        away = ear.message()
        assert (away["job"], away["data"], away["error"]) == (None, None, "the ledger cannot be read")
        tried = channel.ledger.asked["marks"] + 3
        until(lambda: channel.ledger.asked["marks"] >= tried)
        with channel.listening() as late:
            assert late.message()["error"]
        channel.ledger.away = False
        assert ear.message()["error"] is None


@pytest.mark.usefixtures("often")
def test_a_ledger_that_does_not_answer_is_reported_too(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_feed, "LATE_SECONDS", 0.05)
    ledgers.begin(channel.ledger)
    channel.ledger.answers.clear()
    with channel.listening() as ear:
        assert ear.message()["error"] == "the ledger cannot be read"
        channel.ledger.answers.set()
        assert ear.message()["error"] is None
        assert status(ear.message()) == "RUNNING"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("{}", 1008),
        (b"{}", 1008),
        ('{"subscribe": "searchIndexJobStatus", "job": "none"}', 1008),
        ('{"subscribe": "searchIndexJobStatus", "secret": 1}', 1008),
        ('{"subscribe": "searchIndexJobStatus", "job": "\\u0000"}', 1008),
        ("ü" * 2_500, 1009),
    ],
)
def test_an_invalid_subscription_closes_the_connection(channel: Channel, said: str | bytes, code: int) -> None:
    with channel.client() as client:
        client.send(said)
        with pytest.raises(ConnectionClosed) as closed:
            client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == code


@pytest.mark.usefixtures("only_changes")
def test_a_connection_has_one_subscription(channel: Channel) -> None:
    with channel.listening() as ear:
        ear.message()
        ear.client.send("more")
        with pytest.raises(ConnectionClosed, match="one subscription"):
            ear.message()


def test_clients_over_the_limit_are_refused(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "MAX_CLIENTS", 1)
    with channel.client(), channel.client() as second, pytest.raises(ConnectionClosed, match="1013"):
        second.recv()
    with channel.listening() as ear:
        assert ear.message()["error"] is None


def test_a_client_that_subscribes_to_nothing_is_closed(channel: Channel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "SUBSCRIBE_SECONDS", 0.01)
    with channel.client() as client, pytest.raises(ConnectionClosed, match="nothing was subscribed"):
        client.recv()
