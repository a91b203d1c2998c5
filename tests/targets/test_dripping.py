"""Servers whose answer never ends are away: the time-out of an HTTP library holds for each read only."""

from __future__ import annotations

import pytest

from instep.errors import Transient
from instep.retry import tries
from instep.targets.opensearch import connection as opensearch
from instep.targets.qdrant import connection as qdrant
from tests.doubles.dripping_server import dripping


@pytest.mark.parametrize("head", [True, False])
def test_opensearch_that_drips_is_away(monkeypatch: pytest.MonkeyPatch, head: bool) -> None:
    monkeypatch.setattr(opensearch, "TIMEOUT", 0.2)
    with dripping(head=head) as url, pytest.raises(opensearch.Unavailable, match="no whole answer within"):
        opensearch.Connection(url).once("GET", "/")


@pytest.mark.parametrize("head", [True, False])
def test_qdrant_that_drips_is_away(monkeypatch: pytest.MonkeyPatch, head: bool) -> None:
    monkeypatch.setattr(qdrant, "_TIMEOUT", 1)
    monkeypatch.setattr(qdrant, "tries", lambda on: tries(on, attempts=1, first_wait=0.01, longest_wait=0.01))
    with dripping(head=head) as url, pytest.raises(Transient, match="no whole answer within"):
        qdrant.Connection(url).call(lambda client: client.get_collections())
