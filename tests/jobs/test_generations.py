"""Which generation is meant."""

from __future__ import annotations

import pytest

from instep.domain.events import GenerationPromoted
from instep.domain.refs import PartitionRef
from instep.entities.generations import checked_generation, generation_of, one_generation_of
from instep.errors import UserError
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.test_lineage import built

DOCUMENT, TICKET = PartitionRef("Document"), PartitionRef("Ticket")


@pytest.fixture
def ledger() -> MemoryLedger:
    """Of documents, `v2` is promoted; nothing is built of tickets."""
    ledger = MemoryLedger(VirtualClock())
    for generation in ("", "v2"):
        built(ledger, "Document", generation=generation)
    ledger.events.append([GenerationPromoted(ref=str(DOCUMENT), generation="v2")])
    return ledger


def test_the_promoted_one_unless_another_is_asked_for(ledger: MemoryLedger) -> None:
    asked = [generation_of(ledger, DOCUMENT, each) for each in (None, "", "v2", "v3")]
    assert asked == ["v2", "", "v2", "v3"]
    assert generation_of(ledger, TICKET, None) == ""


def test_several_partitions_are_asked_for_in_one_generation(ledger: MemoryLedger) -> None:
    assert one_generation_of(ledger, [DOCUMENT], None) == "v2"
    assert one_generation_of(ledger, [DOCUMENT, TICKET], "") == ""
    with pytest.raises(UserError, match="'v2'"):
        one_generation_of(ledger, [DOCUMENT, TICKET], None)


@pytest.mark.parametrize("name", ["v 2", "../v2", "-v", "v..2", "x" * 65])
def test_names_are_looked_at(name: str) -> None:
    assert checked_generation("2026-01_b.3") == "2026-01_b.3"
    assert checked_generation(None) is None
    with pytest.raises(UserError, match="cannot name a generation"):
        checked_generation(name)
