"""What a process counts of its own work, as Prometheus gets it."""

from __future__ import annotations

import re
import socket
import urllib.request
from pathlib import Path
from urllib.error import URLError

import pytest

import instep
from instep.domain.counts import Counts
from instep.errors import Conflict, UserError
from instep.targets.lance.target import LanceTarget
from instep.telemetry import prometheus
from instep.telemetry.progress import Silent
from instep.telemetry.prometheus import counted
from tests.e2e import corpus
from tests.telemetry.scrape import values_of


class Scraper(Silent):
    """Asks once, when the entity is done and the run is not."""

    def __init__(self) -> None:
        self.url = self.text = ""

    def say(self, entity: str, message: str) -> None:
        if entity == "metrics":
            self.url = message

    def end(self, entity: str, *, well: bool = True) -> None:
        with urllib.request.urlopen(self.url) as answer:
            self.text = answer.read().decode()


def test_a_run_counts_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus.write(tmp_path / "docs", range(12))
    corpus.project(tmp_path, tmp_path / "docs")
    (tmp_path / "docs" / "bad.md").write_bytes(b"\xff\xfe\x00")
    commit, refusals = LanceTarget.commit, [Conflict("rows moved")]

    def once_more(*args: object, **named: object) -> int:
        if refusals:
            raise refusals.pop()
        found: int = commit(*args, **named)  # type: ignore[arg-type]  # whatever it is called with
        return found

    monkeypatch.setattr(LanceTarget, "commit", once_more)
    scraper = Scraper()
    (result,) = instep.load(tmp_path).run(engine="inline", metrics="127.0.0.1:0", progress=scraper)
    found, of = values_of(scraper.text), "entity=Document"
    counts = result.counts
    assert (counts.written, counts.failed) == (12, 1)
    assert found["instep_units_total", of, "outcome=written"] == 12
    assert found["instep_units_total", of, "outcome=failed"] == 1
    assert found["instep_rows_total", "change=written", of] == counts.rows_written > 12
    assert found["instep_read_bytes_total", of] == counts.bytes_read > 0
    assert (found["instep_retries_total", of], found["instep_refused_writes_total", of]) == (1, 0)
    assert found["instep_wave_seconds_count", of] >= 1
    for step, least in (("claim", 1), ("run", 2), ("commit", 1), ("complete", 1)):
        assert found["instep_wave_step_seconds_count", of, f"step={step}"] >= least
    assert any(name.startswith("process_") for name, *_ in found)
    assert not re.search(r"[0-9a-f]{8}-[0-9a-f]{4}|doc_", scraper.text), "no ids in labels"
    with pytest.raises(URLError):
        urllib.request.urlopen(scraper.url)


@pytest.mark.parametrize(
    "address", ["9464", ":9464", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:70000", "nowhere.invalid:1"]
)
def test_an_address_that_is_none_is_refused_in_a_sentence(address: str) -> None:
    with pytest.raises(UserError) as refused, counted(address, print):
        pass
    assert address in str(refused.value)
    assert refused.value.hint


def test_a_port_that_is_taken_is_named() -> None:
    said: list[str] = []
    with counted("127.0.0.1:0", said.append):
        taken = said[0].removeprefix("http://").removesuffix("/metrics")
        with pytest.raises(UserError, match=re.escape(taken)), counted(taken, print):
            pass


def test_every_outcome_of_documents_and_rows_is_counted() -> None:
    said: list[str] = []
    with counted("127.0.0.1:0", said.append) as counters:
        counts = Counts(
            read=10,
            written=4,
            skipped=3,
            deleted=2,
            failed=1,
            rows_written=7,
            rows_kept=6,
            rows_deleted=5,
            bytes_read=90,
        )
        counters.done("Document", 2, counts)
        counters.done("Document", 1, counts)
        with urllib.request.urlopen(said[0]) as answer:
            found, of = values_of(answer.read().decode()), "entity=Document"
    units = {
        name: found["instep_units_total", of, f"outcome={name}"] for name in ("written", "skipped", "deleted", "failed")
    }
    assert units == {"written": 8, "skipped": 6, "deleted": 4, "failed": 2}
    rows = {name: found["instep_rows_total", f"change={name}", of] for name in ("written", "kept", "deleted")}
    assert rows == {"written": 14, "kept": 12, "deleted": 10}
    assert (found["instep_read_bytes_total", of], found["instep_finished_slices_total", of]) == (180, 3)


def test_a_request_that_does_not_come_to_its_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prometheus, "REQUEST_SECONDS", 0.2)
    said: list[str] = []
    with counted("127.0.0.1:0", said.append):
        port = int(said[0].removesuffix("/metrics").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHo")
            assert connection.recv(100) == b""
