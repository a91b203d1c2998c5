"""A target that was changed behind our back: every run says so, in the same words, until it is mended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import instep
from instep.cli import main
from tests.e2e import corpus
from tests.e2e.conftest import Location
from tests.jobs.progress_log import ProgressLog


@pytest.fixture
def place(tmp_path: Path) -> Location:
    made = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(8))
    made.declare()
    made.run()
    return made


def lose_rows(place: Location) -> None:
    import lance

    (physical,) = place.index.glob("Document__*.lance")
    lance.dataset(str(physical)).delete("chunk_index = 0")


def test_damage_is_reported_until_it_is_repaired(place: Location, capsys: pytest.CaptureFixture[str]) -> None:
    lose_rows(place)
    corpus.write(place.docs, range(8, 9))
    command = ["run", "--project", str(place.root), "--json", "--quiet"]
    said = []
    for state in ("COMPLETED", "DAMAGED", "DAMAGED"):
        capsys.readouterr()
        assert main(command) == 3
        (found,) = json.loads(capsys.readouterr().out)
        assert found["state"] == state
        said.append([note for note in found["notes"] if "were recorded" in note])
    assert said[0] == said[1] == said[2] != []
    assert "it is served as it is" in said[0][0]
    instep.load(place.root).repair()
    assert main(command) == 0
    assert place.wrong() == ""


def test_a_worker_that_follows_the_source_says_it_too(place: Location) -> None:
    lose_rows(place)
    corpus.write(place.docs, range(8, 9))
    told = ProgressLog()
    instep.load(place.root).worker(watch=1.0, until_idle=True, progress=told)
    assert len([message for _, message in told.lines if "were recorded" in message]) == 1
