"""All partitions of an entity share physical indexes; and the slices of a part, one by one."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.instances import Reason
from instep.domain.jobs import JobPart, SliceState
from instep.domain.refs import PartitionRef
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    claim_all,
    complete_all,
    end,
    lease_of,
    outcome,
    part_of,
    plan,
    plans,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures

#: Names that a careless comparison would take for that of `OTHER`.
_ALIKE = [PartitionRef.parse(each) for each in ("ticket@42/9970", "Ticke_@42/9970", "Tickets@42/9970", "Ticke@42/9970")]
_BESIDE = PartitionRef.parse("Ticket@42/100")


def _begun(ledger: Ledger, ref: PartitionRef, physical: str, generation: str = "") -> JobPart:
    """A running job, named as its index is, that builds a partition into that."""
    lease = lease_of(ledger, "ann", ref, job_id=physical)
    uuid = ledger.instances.new(lease, Reason.REBUILD, generation=generation)
    part = replace(part_of(lease, instance=uuid, generation=generation), physical=physical)
    ledger.parts.plan(physical, [NewPart(part, plans(1))])
    ledger.jobs.start(physical)
    return part


def _built(ledger: Ledger, ref: PartitionRef, physical: str, generation: str = "") -> None:
    part = _begun(ledger, ref, physical, generation)
    complete_all(ledger, part, job_id=physical)
    end(ledger, part, physical)


class Entities(Fixtures):
    def test_checkpoints_of_an_entity_are_those_of_all_its_partitions_and_generations(self, ledger: Ledger) -> None:
        for number, ref in enumerate((*_ALIKE, OTHER, _BESIDE)):
            _built(ledger, ref, f"index-{number}")
        _built(ledger, OTHER, "second", "v2")
        found = ledger.checkpoints.of_entity("Ticket")
        keys = [(each.ref, each.generation) for each in found]
        assert keys == [(_BESIDE, ""), (OTHER, ""), (OTHER, "v2")]
        assert found[1:] == ledger.checkpoints.of_partition(OTHER)
        assert [each.ref for each in ledger.checkpoints.of_entity("Ticke_")] == [_ALIKE[1]]
        assert ledger.checkpoints.of_entity("Unknown") == []
        assert ledger.checkpoints.entities() == {"Ticket", "ticket", "Ticke_", "Tickets", "Ticke"}

    def test_indexes_that_any_partition_of_the_entity_needs_are_needed(self, ledger: Ledger) -> None:
        for number, ref in enumerate(_ALIKE):
            _built(ledger, ref, f"other-{number}")
        _begun(ledger, _ALIKE[0], "of another")
        _built(ledger, OTHER, "served")
        _begun(ledger, _BESIDE, "begun")
        assert ledger.partitions.indexes("Ticket") == {"served", "begun"}
        ledger.jobs.request_stop("begun")
        assert ledger.partitions.indexes("Ticket") == {"served", "begun"}, "it can be resumed"
        assert ledger.partitions.indexes("Unknown") == set()

    # Slices, one by one.

    def test_the_slices_of_a_part_come_by_number_with_their_outcomes(self, ledger: Ledger) -> None:
        planned = [plan(0, [0], work=1), plan(1, [1, 2], work=5), plan(2, [3], work=9)]
        part = running(ledger, planned)
        first = claim_all(ledger)
        assert [each.index for each in first] == [2, 1, 0], "the largest first"
        ledger.slices.complete(part, "ann", [outcome(first[0])], job_id="job")
        ledger.slices.give_back([first[1]], "ann", error="out of memory", spent=True)
        found = ledger.slices.of_part("job", REF)
        assert [(each.index, each.state, each.attempts, each.error) for each in found] == [
            (0, SliceState.PROCESSING, 0, None),
            (1, SliceState.PENDING, 1, "out of memory"),
            (2, SliceState.COMPLETED, 0, None),
        ]
        assert [(each.units, each.payload) for each in found] == [(each.units, each.payload) for each in planned]
        assert ledger.slices.of_part("job", REF, limit=2) == found[:2]
        assert ledger.slices.of_part("job", OTHER) == ledger.slices.of_part("another", REF) == []
