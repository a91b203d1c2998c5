"""Some seconds of SIGKILL and SIGSTOP on each ledger: nothing is lost, stale or double."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.soak.chaos import soak
from tests.soak.ledgers import LEDGERS, server_of, url_of
from tests.soak.site import Site

SECONDS = 10
DOCUMENTS = 5_000


@pytest.mark.long
@pytest.mark.parametrize("ledger", LEDGERS)
def test_servers_that_are_killed_and_stopped_all_the_time_lose_and_double_nothing(ledger: str, tmp_path: Path) -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    site = Site(tmp_path, url_of(ledger, tmp_path), seed)
    verdict = soak(site, seconds=SECONDS, documents=DOCUMENTS, seed=seed, ledger=server_of(ledger), report=print)
    print(verdict.table())
    assert verdict.problems == ()
