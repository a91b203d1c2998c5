"""From a row to where it comes from, through real runs on a SQLite ledger."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from instep.answers.why import Provenance
from instep.domain.events import WantCreated
from instep.domain.identity import content_hash, document_id
from instep.entities.documents import provenance
from instep.errors import UserError
from instep.sources.local_files import version
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.projects import Home, home


@pytest.fixture
def place(tmp_path: Path) -> Home:
    return home(tmp_path)


def why(place: Home, id: str, target: str = "Document") -> Provenance:
    return place.open().why(target, id)


def test_a_row_leads_to_its_instance_job_file_and_code(place: Home) -> None:
    result = place.run()
    found = why(place, place.uri(3))
    assert found.instance is not None
    assert found.instance.uuid == place.open().history("Document")[0].uuid == found.row["instance"]
    assert found.job is not None
    assert found.job.id == result.job_id
    assert found.job.fingerprint == found.instance.fingerprint
    assert found.document is not None
    assert found.document["document_hash"] == content_hash(place.path(3).read_bytes()) == found.row["document_hash"]
    assert found.document["version"] == version(place.path(3).stat())
    assert found.window is not None
    assert found.window == found.instance.window
    assert found.window.floor == 0
    assert (found.target, found.physical) == ("index", found.instance.physical)
    assert (found.wants, found.inputs) == ((), ())


def test_uri_document_and_chunk_lead_to_the_same_row(place: Home) -> None:
    place.run()
    found = why(place, place.uri(7))
    assert why(place, found.row["document_id"]) == found
    assert why(place, found.row["chunk_id"]) == found
    assert why(place, document_id(place.uri(7)), "index") == found
    assert why(place, f"{place.uri(7)}?signature=x#y") == found


def test_each_row_leads_to_the_job_and_the_window_that_wrote_it(place: Home) -> None:
    first = place.run()
    jobs = {0: first.job_id}
    for number in (1, 2, 3):
        place.change(number, "changed")
        jobs[number] = place.run().job_id
    windows = []
    for number in range(4):
        found = why(place, _last_chunk(place, number))
        assert found.job is not None
        assert found.job.id == jobs[number]
        assert found.window is not None
        windows.append(found.window)
    # One after the other: what a refresh adds begins where the instance was complete up to.
    assert windows[0].floor == 0
    assert all(later.floor >= earlier.floor for earlier, later in pairwise(windows))
    assert all(each.floor <= each.target for each in windows)
    assert len({(each.floor, each.target) for each in windows}) == 4


def _last_chunk(place: Home, number: int) -> str:
    last = place.path(number).read_text(encoding="utf-8").rsplit(maxsplit=1)[-1]
    hits = place.open().search(last, mode="text", limit=1000)
    chunks = [each for each in hits if each.source_uri == place.uri(number)]
    return max(chunks, key=lambda hit: hit.chunk_index).chunk_id


def test_a_chunk_that_stays_keeps_the_job_that_wrote_it_while_its_document_changes(place: Home) -> None:
    first = place.run()
    before = content_hash(place.path(4).read_bytes())
    place.change(4, "changed at the end")
    place.run()
    found = why(place, place.uri(4))
    assert found.job is not None
    assert (found.row["chunk_index"], found.job.id, found.row["document_hash"]) == (0, first.job_id, before)
    assert found.document is not None
    assert found.document["document_hash"] == content_hash(place.path(4).read_bytes())


def test_wants_that_the_instance_satisfied_are_reported(place: Home) -> None:
    waiting = place.open().want(["Document"], by="ann")
    place.run()
    later = place.open().want(["Document"], fresh_within=timedelta(hours=1), by="bob")
    unsatisfied = place.open().want(["Document"], generation="v2")
    found = why(place, place.uri(0))
    assert {each.id for each in found.wants} == {waiting.id, later.id}
    assert unsatisfied.id not in str(found)


def test_an_unknown_row_is_answered_with_a_hint(place: Home) -> None:
    with pytest.raises(UserError, match="nothing of Document is served yet"):
        why(place, place.uri(0))
    assert not (place.root / ".instep" / "ledger.db").exists()
    place.run()
    with pytest.raises(UserError, match="no row"):
        why(place, "file:///nowhere.md")
    with pytest.raises(UserError, match="white space"):
        why(place, "file:///no where.md")
    with pytest.raises(UserError) as caught:
        why(place, place.uri(0), "Documnet")
    assert caught.value.hint == "Declared: index, Document."


def test_the_first_event_of_a_time_is_found_in_a_log_of_any_length() -> None:
    clock = VirtualClock()
    ledger = MemoryLedger(clock)
    began = clock.now()
    for number in range(23):
        for twice in range(1 + number % 3):
            ledger.events.append([WantCreated(want=f"w{number}-{twice}", refs=("Document@global",))])
        clock.sleep(2)
    times = [at for _, at, *_ in ledger.events.rows()]
    for time in range(began - 1, clock.now() + 2_000, 500):
        assert provenance._events_before(ledger, time) == sum(at < time for at in times)
    assert provenance._events_before(MemoryLedger(clock), began) == 0
