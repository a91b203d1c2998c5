"""What docs/monitoring.md and the dashboard speak of exists: metrics by their names, SQL on real ledgers."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, create_engine, text

from instep.api.metrics import registry_of
from instep.app import load
from instep.cli import main
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import server_at
from instep.system import SystemClock
from instep.telemetry.prometheus import PrometheusCounters
from tests.contracts.ledger.building import outcome, plans, running
from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, postgres_ledger

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "monitoring.md").read_text()
_ENDINGS = {"counter": ("_total",), "histogram": ("_bucket", "_sum", "_count"), "gauge": ("",)}


def names_in(registry: CollectorRegistry, *, endings: bool) -> set[str]:
    """Of families as one speaks of them; or, with `endings`, of all samples that they can have."""
    return {
        family.name + (ending if endings or family.type == "counter" else "")
        for family in registry.collect()
        for ending in _ENDINGS[family.type]
        if family.name.startswith("instep_")
    }


@pytest.fixture
def registries(tmp_path: Path) -> tuple[CollectorRegistry, CollectorRegistry]:
    """What a server serves, and what a worker does."""
    (tmp_path / "instep.yaml").write_text(
        "name: watched\nqueues:\n  bills: {on: 'sqlite:///shop.db', key: id, keys: {from: 1, below: 9}, "
        "source: {table: items}, covered_by: [{table: done}]}\n"
    )
    workers = CollectorRegistry()
    PrometheusCounters(workers)
    return registry_of(load(tmp_path)), workers


def test_every_metric_is_documented_and_no_other(registries: tuple[CollectorRegistry, CollectorRegistry]) -> None:
    rows = re.findall(r"^\| (`instep_\w+`.*?) \|", PAGE, re.MULTILINE)
    documented = {name for row in rows for name in re.findall(r"instep_\w+", row)}
    assert documented == set().union(*(names_in(each, endings=False) for each in registries))


def test_the_dashboard_asks_for_metrics_that_there_are(
    registries: tuple[CollectorRegistry, CollectorRegistry],
) -> None:
    dashboard = json.loads((DOCS / "grafana-dashboard.json").read_text())
    asked = {name for text_ in _texts(dashboard) for name in re.findall(r"\binstep_\w+", text_)}
    known = set().union(*(names_in(each, endings=True) for each in registries))
    assert len(asked) > 20
    assert asked - known == set()
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert len({(each["x"], each["y"]) for each in places}) == len(places)


def test_the_places_to_scrape_are_where_servers_and_workers_listen(capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = re.findall(r"```yaml\n(scrape_configs:.*?)```", PAGE, re.DOTALL)
    jobs = yaml.safe_load(block)["scrape_configs"]
    server, worker = (urlsplit(f"//{each['static_configs'][0]['targets'][0]}") for each in jobs)
    for command, port in (("serve", f"default: {server.port};"), ("worker", f"{worker.port}")):
        assert main([command, "--help"]) == 0
        assert port in capsys.readouterr().out


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [found for each in value.values() for found in _texts(each)]
    if isinstance(value, list):
        return [found for each in value for found in _texts(each)]
    return [value] if isinstance(value, str) else []


def _queries(name: str) -> list[str]:
    """Those for every ledger, then those for this one."""
    blocks = re.findall(r"```sql\n-- (.*?)\n(.*?)```", PAGE, re.DOTALL)
    assert {title for title, _ in blocks} == {"Every ledger", "SQLite", "PostgreSQL", "MariaDB, MySQL"}
    return [query for title, query in blocks if title in ("Every ledger", name)]


def _ask(ledger: Ledger, engine: Engine, name: str) -> None:
    """A job with three slices: one is done, one is in the hands of a worker that is silent, one of one that lives."""
    part = running(ledger, plans(3))
    first, second = ledger.slices.claim("job", part.ref, "ann", work=20, limit=2)
    ledger.slices.complete(part, "ann", [outcome(first, fail=[0])], job_id="job")
    ledger.workers.register("bob", kind="worker", host="there", pid=2)
    ledger.jobs.join("job", "bob")
    ledger.slices.claim("job", part.ref, "bob", work=1, limit=1)
    how_far, who, stale = _queries(name)
    with engine.begin() as connection:
        silent = text("UPDATE workers SET heartbeat_at = heartbeat_at - 301000 WHERE id = 'ann'")
        connection.execute(silent)
    with engine.connect() as connection:
        (job,) = connection.execute(text(how_far)).mappings()
        assert {name: int(job[name]) for name in ("total", "success", "failed")} == {
            "total": 6,
            "success": 1,
            "failed": 1,
        }
        assert (job["id"], job["state"]) == ("job", "RUNNING")
        slices = connection.execute(text(who.replace("THE-JOB", "job"))).all()
        assert {tuple(row) for row in slices} == {
            ("ann", "COMPLETED", 1),
            ("ann", "PROCESSING", 1),
            ("bob", "PROCESSING", 1),
        }
        (row,) = connection.execute(text(stale)).mappings()
        assert (row["id"], row["worker_id"]) == (second.slice_id, "ann")


def test_the_queries_run_on_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'ledger.db'}"
    engine = create_engine(url)
    with closing(open_ledger(url, clock=SystemClock())) as ledger:
        _ask(ledger, engine, "SQLite")
    engine.dispose()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "database"), [("PostgreSQL", postgres_ledger), ("MariaDB, MySQL", mariadb_ledger)], ids=["pg", "mariadb"]
)
def test_the_queries_run_on_servers(name: str, database: Callable[[], LedgerDatabase]) -> None:
    found = database()
    found.empty()
    engine = server_at(found.address).engine(read_only=False)
    with closing(found.open()) as ledger:
        _ask(ledger, engine, name)
    engine.dispose()
