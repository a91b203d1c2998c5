"""Stopped for longer than its lease, and back again: all that it was about to write is refused."""

from __future__ import annotations

from pathlib import Path

import lance
import pytest

from tests.e2e import truth
from tests.soak.chaos import FASTER
from tests.soak.fleet import fleet
from tests.soak.ledgers import LEDGERS, url_of
from tests.soak.records import Records
from tests.soak.site import Site
from tests.soak.verdict import refusals, unique
from tests.soak.witness import COMMIT, COMPLETE, STAGED


def version(site: Site) -> int:
    return int(lance.dataset(truth.served(site.index)).version)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("ledger", LEDGERS)
def test_a_process_paused_beyond_its_lease_is_refused_at_every_write(ledger: str, tmp_path: Path) -> None:
    site = Site(tmp_path, url_of(ledger, tmp_path), seed=1)
    site.prepare(300, entity="buckets: 12")
    records = Records(site.engine)
    with fleet(site, faster=FASTER) as servers:
        run = servers.start(0, "run", ambush=STAGED)
        servers.wait_until_still(run)
        late = [servers.start(1, "worker", ambush=COMMIT), servers.start(2, "worker", ambush=COMPLETE)]
        servers.wait_until_still(*late)
        still = {server.name: server.named("still")[0] for server in (run, *late)}
        assert all(event.slices for event in still.values())

        # The only one that moves takes over what all of them had, and finishes.
        other = servers.start(3, "worker")
        servers.wait(lambda: not records.open_jobs(), "the other one to finish")
        done, served = other.named("completed"), version(site)
        assert sum(len(event.slices) for event in done) == len(records.slices())
        assert site.wrong().total == 0

        for server in (run, *late):
            server.resume()
        servers.wait(lambda: all(each.named("refused", after=still[each.name].at) for each in (run, *late)), "refusals")
        servers.wait(lambda: run.ended, "the run, which finds its job finished")
        servers.end()

        assert [refusals(each.events) for each in (run, *late)] == [{"itself": 1}, {"target": 1}, {"ledger": 1}]
        assert not any(each.named("completed") for each in (run, *late))
        assert run.named("result")[0].facts["states"] == ["COMPLETED"]
        assert version(site) == served, "nothing was written by those who came late"
        held = {slice_id for event in still.values() for slice_id, _ in event.slices}
        assert {row.id for row in records.slices() if row.fence > 1} == held
        assert list(unique(servers.events)) == []
        assert records.failures() == 0
        assert site.wrong().total == 0
