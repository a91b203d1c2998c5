"""What tries mutants notices what a test notices, and says what none does."""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.mutants import command
from tests.mutants.command import ROOT, main
from tests.mutants.mutant import Mutant, Stale
from tests.mutants.slips import ALL, LAYERS

TESTS = ("tests/domain/test_durations.py",)
NOTICED = Mutant("a week has six days", "domain/texts.py", '"w": 7 * 86_400_000}', '"w": 6 * 86_400_000}', TESTS)
UNSEEN = Mutant("a hundred years have a day more", "domain/texts.py", "LONGEST = 36_525 *", "LONGEST = 36_526 *", TESTS)
GONE = Mutant("what is gone", "domain/texts.py", "no such text", "", TESTS)
NO_TESTS = Mutant("no test looks", "domain/texts.py", '"w": 7 * 86_400_000}', '"w": 6}', ("tests/nowhere.py",))

#: Takes all of a bound, and leaves a process behind that is not waited for.
LEFT = "86399.25"
HOG = Mutant(
    "everything is eaten",
    "domain/texts.py",
    "LONGEST = 36_525 *",
    f"""__import__("subprocess").Popen(["sleep", "{LEFT}"], start_new_session=True)
_EATEN = b"x" * (1 << 30)
__import__("time").sleep(60)
LONGEST = 36_525 *""",
    TESTS,
)


@pytest.mark.long
def test_noticed_and_unnoticed_mutants_are_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    before = (ROOT / NOTICED.path).read_bytes()
    resume = str(tmp_path / "kept")
    assert main(["--workers", "1", "--resume", resume], [NOTICED, UNSEEN]) == 1
    said = capsys.readouterr().out
    assert "noticed 1 of 2 (50.0%), 0 could not be tried" in said
    assert f"no test noticed  {UNSEEN.path}: {UNSEEN.breaks}" in said
    assert "[tests/domain/test_durations.py::" in said, "which test has noticed it"
    assert (ROOT / NOTICED.path).read_bytes() == before, "it was tried on a copy"
    assert main(["--resume", resume], [NOTICED]) == 0
    said = capsys.readouterr().out
    assert "noticed 1 of 1" in said
    assert NOTICED.breaks not in said, "it is not tried again"


@pytest.mark.long
def test_the_test_that_noticed_it_is_run_first_and_the_others_when_it_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first = tmp_path / "noticed.json"
    monkeypatch.setattr(command, "FIRST", first)
    elsewhere = replace(NOTICED, breaks="its own tests notice nothing", tests=("tests/domain/test_refs.py",))
    test, gone = f"{TESTS[0]}::test_units", f"{TESTS[0]}::test_gone"
    first.write_text(json.dumps({elsewhere.breaks: test, NOTICED.breaks: gone, "no mutant any more": test}))
    assert main(["--workers", "1", "--remember"], [elsewhere, NOTICED]) == 0
    assert "noticed 2 of 2" in capsys.readouterr().out
    known = json.loads(first.read_text())
    assert list(known) == [elsewhere.breaks, NOTICED.breaks]
    assert all(each.startswith(f"{test}[") for each in known.values())


@pytest.mark.long
def test_one_that_takes_too_much_memory_is_noticed_and_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(command, "_BYTES", 768 << 20)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert main(["--workers", "1"], [HOG]) == 0
    assert "its processes held more than 0.75 GiB of memory" in capsys.readouterr().out
    assert [each.pid for each in psutil.process_iter(["cmdline"]) if LEFT in (each.info["cmdline"] or ())] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
def test_a_test_that_fails_anyway_notices_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    conftest = "from hypothesis import settings\nsettings.register_profile('hasty')\n"
    (tmp_path / "conftest.py").write_text(conftest, encoding="utf-8")
    (tmp_path / "test_anyway.py").write_text("def test_anyway() -> None:\n    raise OSError\n", encoding="utf-8")
    assert main([], [replace(NOTICED, tests=(str(tmp_path / "test_anyway.py"),))]) == 2
    said = capsys.readouterr().out
    assert "[without the slip, too: " in said
    assert "test_anyway.py::test_anyway]" in said


@pytest.mark.long
def test_a_mutant_that_cannot_be_tried_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([], [GONE]) == 2
    assert "src/instep/domain/texts.py: 'no such text' is not there any more" in capsys.readouterr().out
    assert main(["--workers", "1"], [NO_TESTS]) == 2
    assert "tests/nowhere.py" in capsys.readouterr().out


def test_those_that_are_named_are_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--only", "six days", "nothing"], [NOTICED, UNSEEN]) == 0
    assert capsys.readouterr().out.splitlines() == ["src/instep/domain/texts.py: a week has six days", "1 mutants"]
    assert main(["--only", "nothing"], [NOTICED]) == 2


@pytest.mark.parametrize("layer", LAYERS)
def test_each_stands_in_the_product_as_it_is(layer: str) -> None:
    """Where the product has changed, find what the slip would be now, or take it out of the list."""
    stale = []
    for mutant in LAYERS[layer]:
        try:
            mutant.demand_text(ROOT)
        except Stale as error:
            stale.append(f"{mutant.breaks}: {error}")
        if mutant.text == mutant.by:
            stale.append(f"{mutant.breaks}: changes nothing")
        missing = [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()]
        stale += [f"{mutant.breaks}: there is no {test}" for test in missing]
    assert stale == []


def test_every_layer_has_many_distinct_mutants() -> None:
    assert [name for name, number in Counter(each.breaks for each in ALL).items() if number > 1] == []
    assert len(ALL) >= 100
    assert min(map(len, LAYERS.values())) >= 10


def test_those_remembered_are_mutants_and_tests_that_there_are() -> None:
    """Else remembering them means nothing: `--remember` leaves out what is no mutant any more."""
    known = json.loads(command.FIRST.read_text(encoding="utf-8"))
    assert sorted(known.keys() - {each.breaks for each in ALL}) == []
    defined = {
        name
        for folder in ("tests", "src/instep/testing")
        for path in (ROOT / folder).rglob("*.py")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    gone = []
    for test in known.values():
        path, *_, name = test.partition("[")[0].split("::")
        if not (ROOT / path).exists() or name not in defined:
            gone.append(test)
    assert gone == []
