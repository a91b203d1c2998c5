"""Paces of entities: the newest of each engine, for each way of doing it."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.planning import Measured
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.fixtures import Fixtures


class Paces(Fixtures):
    def test_the_newest_pace_of_each_engine_is_kept_for_each_entity_and_embedder(self, ledger: Ledger) -> None:
        first = Measured("inline", 2, 10**12, 5_000, "first")
        second, spark = replace(first, work=70, job_id="second"), replace(first, engine="spark", cores=16)
        assert ledger.paces.of("Document", "hashing") == []
        for each in (spark, first, second):
            ledger.paces.record("Document", "hashing", each)
        ledger.paces.record("Document", "model", first)
        ledger.paces.record("Page", "hashing", first)
        assert ledger.paces.of("Document", "hashing") == [second, spark]
        assert ledger.paces.of("Document", "model") == ledger.paces.of("Page", "hashing") == [first]
