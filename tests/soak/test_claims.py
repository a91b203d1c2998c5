"""Five servers, twenty slices: each is claimed exactly once, always."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.soak.fleet import fleet
from tests.soak.ledgers import LEDGERS, url_of
from tests.soak.records import Records
from tests.soak.site import Site

SLICES = 20
REPEATS = 4
#: So that no bucket is empty, and each is one slice.
DOCUMENTS = 400


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ledger", LEDGERS)
def test_five_servers_claim_each_of_twenty_slices_exactly_once_again_and_again(ledger: str, tmp_path: Path) -> None:
    site = Site(tmp_path, url_of(ledger, tmp_path), seed=1)
    site.prepare(DOCUMENTS, entity=f"buckets: {SLICES}")
    # Times so long that no worker is taken for dead, however busy the machine is.
    with fleet(site, faster=10, claim=1) as servers:
        run, *workers = (servers.start(slot, "worker" if slot else "runs") for slot in range(5))
        servers.wait(lambda: all(each.named("worker") for each in workers), "workers")
        for repeat in range(1, REPEATS + 1):
            run.line()
            servers.wait(lambda done=repeat: len(run.named("result")) == done, f"job {repeat}")  # type: ignore[misc]  # bound at once
            site.edit(DOCUMENTS, 0, 0)
        servers.end()

        claims = Counter(each for event in servers.events if event.name == "claimed" for each in event.slices)
        completions = Counter(each for event in servers.events if event.name == "completed" for each in event.slices)
        records = Records(site.engine)
        expected = {(row.id, 1): 1 for row in records.slices()}
        assert len(records.jobs()) == REPEATS
        assert set(records.jobs().values()) == {"COMPLETED"}
        assert set(Counter(row.job_id for row in records.slices()).values()) == {SLICES}
        assert claims == expected
        assert completions == expected
        print({each.name: len(each.named("claimed")) for each in (run, *workers)})
