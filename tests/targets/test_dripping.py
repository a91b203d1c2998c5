"""Servers whose answer never ends are away: the time-out of an HTTP library holds for each read only."""

from __future__ import annotations

import threading

import pytest

from instep.clickhouse import server as clickhouse
from instep.clickhouse.session import ServerAddress
from instep.errors import Away, Transient
from instep.servers.calls import Greeting, tries
from instep.targets.opensearch import indexes as opensearch
from instep.targets.qdrant import server as qdrant
from tests.doubles.raw_server import Drops, answering


@pytest.mark.parametrize("head", [True, False])
def test_opensearch_that_drips_is_away(monkeypatch: pytest.MonkeyPatch, head: bool) -> None:
    monkeypatch.setattr(opensearch, "TIMEOUT", 0.2)
    monkeypatch.setattr(opensearch._GREETING, "demand", lambda *_: None)
    # Between two drips of a busy machine the time-out of one read may come first.
    with answering(Drops(head=head)) as url, pytest.raises(opensearch.Unavailable, match=r"no (whole )?answer within"):
        opensearch.Connection(url).once("GET", "/")


@pytest.mark.parametrize("head", [True, False])
def test_qdrant_that_drips_is_away(monkeypatch: pytest.MonkeyPatch, head: bool) -> None:
    monkeypatch.setattr(qdrant, "_TIMEOUT", 1)
    monkeypatch.setattr(qdrant._GREETING, "demand", lambda *_: None)
    monkeypatch.setattr(qdrant, "tries", lambda on: tries(on, attempts=1, first_wait=0.01, longest_wait=0.01))
    with answering(Drops(head=head)) as url, pytest.raises(Transient, match="no whole answer within"):
        qdrant.Connection(url).call(lambda client: client.get_collections())


def test_servers_that_say_nothing_are_away_before_they_are_given_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work may take minutes, and is tried again: a server that does not answer at all is not awaited as long."""
    monkeypatch.setattr("instep.servers.calls.GREETING", 0.2)
    monkeypatch.setattr(clickhouse, "GREETING", 0.2)
    with answering(Drops(head=False)) as url:
        with pytest.raises(Transient, match="no whole answer within"):
            opensearch.Connection(url).ask("GET", "/_cat/indices")
        with pytest.raises(Transient, match="no whole answer within"):
            qdrant.Connection(url).call(lambda client: client.get_collections())
        with pytest.raises(Away, match="no whole answer within"):
            clickhouse.session(ServerAddress.parse(url, database="d"))


def test_a_server_is_greeted_once_and_again_after_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.servers.calls.GREETING", 0.05)
    greeting, asked, never = Greeting(), [], threading.Event()
    for _ in range(2):
        greeting.demand("server", lambda: asked.append("once"))
    assert asked == ["once"]
    greeting.forget("server")
    with pytest.raises(TimeoutError):
        greeting.demand("server", lambda: never.wait(30))
    never.set()
    greeting.demand("server", lambda: asked.append("again"))
    assert asked == ["once", "again"]
