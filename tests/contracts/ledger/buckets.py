"""What each bucket of a partition holds, and how it keeps up."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.buckets import BucketLoad
from instep.domain.jobs import SlicePlan
from instep.domain.manifest import decode_changes, encode_changes
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    change,
    claim_all,
    end,
    lease_of,
    outcome,
    plan,
    planned,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures


def _of_bucket(bucket: int, index: int, documents: list[int]) -> SlicePlan:
    made = plan(index, documents)
    payload = encode_changes([each._replace(bucket=bucket) for each in decode_changes(made.payload)])
    return replace(made, bucket=bucket, payload=payload)


class Buckets(Fixtures):
    def test_buckets_hold_documents_and_tell_how_long_changes_took(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, [_of_bucket(1, 0, [0, 1, 2]), _of_bucket(1, 1, [3]), _of_bucket(7, 2, [4, 5])])
        clock.advance(100)
        claims = {claim.index: claim for claim in claim_all(ledger)}
        for index, milliseconds in ((1, 10), (0, 20)):
            clock.advance(milliseconds)
            ledger.slices.complete(part, "ann", [outcome(claims[index], fail=[2])], job_id="job")
        sizes = sum(change(number).size for number in (0, 1, 3))
        held = BucketLoad(1, 3, 9, sizes, slices=2, latency=120, longest=130, working=20)
        assert ledger.documents.bucket_loads(REF, "", part.instance) == [
            held,
            BucketLoad(7, pending=2, pending_since=START),
        ]
        clock.advance(1_000)
        ledger.slices.complete(part, "ann", [outcome(claims[2])], job_id="job")
        end(ledger, part)
        seven = ledger.documents.bucket_loads(REF, "", part.instance)[1]
        assert (seven.documents, seven.rows, seven.pending, seven.pending_since) == (2, 6, 0, None)
        assert (seven.slices, seven.latency) == (1, 1_130)

    def test_pending_documents_of_the_next_job_count(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = running(ledger, [_of_bucket(1, 0, [0])])
        ledger.slices.complete(first, "ann", [outcome(claim) for claim in claim_all(ledger)], job_id="job")
        end(ledger, first)
        clock.advance(500)
        planned(ledger, [_of_bucket(1, 0, [0]), _of_bucket(2, 1, [1, 2])], job_id="next")
        one, two = ledger.documents.bucket_loads(REF, "", first.instance)
        assert (one.documents, one.slices, one.pending, one.pending_since) == (1, 1, 1, START + 500)
        assert two == BucketLoad(2, pending=2, pending_since=START + 500)

    def test_buckets_of_others_are_not_counted(self, ledger: Ledger) -> None:
        part = running(ledger, [_of_bucket(1, 0, [0])])
        ledger.leases.release(lease_of(ledger, "ann", OTHER, job_id="other"))
        assert ledger.documents.bucket_loads(OTHER, "", part.instance) == []
        assert ledger.documents.bucket_loads(REF, "v2", "nothing") == []
