"""The commands as a user types them: output, JSON, exit codes, and errors that help."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from instep.cli import main
from instep.errors import UserError
from instep.pipeline.engine import doctor
from tests.e2e import corpus


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with ten documents, and the current folder in it."""
    corpus.write(tmp_path / "docs", range(10))
    corpus.project(tmp_path, tmp_path / "docs")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == code, capsys.readouterr()
    out = capsys.readouterr()
    assert "Traceback" not in out.err
    return out.out if not code or code in (2, 3) else out.out + out.err


def test_plan_exits_with_2_until_nothing_is_pending(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "plan", code=2)
    assert "first build" in said
    assert "inline" in said
    answer(capsys, "run")
    assert "Nothing to do" in answer(capsys, "plan")


def test_plan_as_json_names_kind_reasons_and_engine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = json.loads(answer(capsys, "plan", "--json", "--explain", code=2))
    assert plan["documents"]["new"] == 10
    assert plan["engine"]["name"] == "inline"
    assert len(plan["changes"]) == 10
    assert plan["changes"][0]["why"] == "new"


def test_a_saved_plan_is_run_once_and_then_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "plan", "-o", "plan.json", code=2)
    assert "completed" in answer(capsys, "run", "plan.json")
    refused = answer(capsys, "run", "plan.json", code=1)
    assert "out of date" in refused
    assert "instep plan -o plan.json" in refused


def test_a_saved_plan_is_run_with_its_own_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "run")
    answer(capsys, "plan", "--full-refresh", "-o", "plan.json", code=2)
    assert "completed" in answer(capsys, "run", "plan.json")


def test_a_saved_plan_takes_no_other_options(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "plan", "-o", "plan.json", code=2)
    for option in ("--full-refresh", "--retry-failures", "--allow-deletes", "--allow-empty"):
        assert "has its own options" in answer(capsys, "run", "plan.json", option, code=1)


def test_a_plan_of_another_format_is_not_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "plan", "-o", "plan.json", code=2)
    plan = json.loads((folder / "plan.json").read_text())
    (folder / "plan.json").write_text(json.dumps({**plan, "format": "instep-plan-99"}))
    assert "another format" in answer(capsys, "run", "plan.json", code=1)


def test_a_file_that_is_no_plan_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "other.json").write_text('{"a": 1}')
    assert "not a saved plan" in answer(capsys, "run", "other.json", code=1)
    assert "cannot be read" in answer(capsys, "run", "missing.json", code=1)


def test_run_exits_with_3_when_documents_failed_and_failures_gives_the_reason(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "docs" / "bad.md").write_bytes(b"\xff\xfa")
    said = answer(capsys, "run", code=3)
    assert "instep failures" in said
    listed = answer(capsys, "failures")
    assert "bad.md" in listed
    (failure,) = json.loads(answer(capsys, "failures", "--json"))
    assert failure["uri"].endswith("bad.md")
    assert failure["reason"]


def test_failures_are_dismissed_and_listed_again_when_they_fail_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "docs" / "bad.md").write_bytes(b"\xff\xfa")
    (folder / "docs" / "worse.md").write_bytes(b"\xff\xfa")
    answer(capsys, "run", code=3)
    (worse,) = [each["uri"] for each in json.loads(answer(capsys, "failures", "--json")) if "worse" in each["uri"]]
    said = answer(capsys, "failures", "Document", "--dismiss", "bad.md", code=1)
    assert "there is no failure of bad.md" in said
    assert f"{worse} is dismissed." in answer(capsys, "failures", "Document", "--dismiss", worse)
    assert "worse.md" not in answer(capsys, "failures")
    (folder / "docs" / "worse.md").unlink()
    answer(capsys, "run")
    (dismissed,) = json.loads(answer(capsys, "failures", "--dismiss", f"{worse.removesuffix('worse.md')}*", "--json"))
    assert dismissed["uri"].endswith("bad.md")
    assert "No failures." in answer(capsys, "failures")
    (folder / "docs" / "good.md").write_text("A good one.")
    answer(capsys, "run", code=3)
    assert "bad.md" in answer(capsys, "failures")


def test_search_shows_each_document_once(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    columns = 'columns: {line: {type: int, from: "chunk:line"}, size: {type: int, from: "file:size"}}'
    corpus.project(folder, folder / "docs", entity=columns)
    answer(capsys, "run")
    asked = ("search", "Section of 3", "--mode", "text", "--limit", "8")
    hits = json.loads(answer(capsys, *asked, "--json"))
    documents = list(dict.fromkeys(each["document_id"] for each in hits))
    assert len(hits) == 8 > len(documents)
    said = answer(capsys, *asked)
    assert len(re.findall(r"(?m)^\d+\. ", said)) == len(documents)
    # What they have in common is said once.
    assert len(re.findall(r"(?m)^   line \d+, size \d+$", said)) == len(documents)
    assert len(re.findall(r"(?m)^   also  \d\.\d{3}  line \d+$", said)) == 8 - len(documents)
    grouped = json.loads(answer(capsys, *asked, "--json", "--group"))
    assert [each["document_id"] for each in grouped][: len(documents)] == documents
    assert len({each["document_id"] for each in grouped}) == len(grouped)
    assert "also" not in answer(capsys, *asked, "--group")


def test_search_marks_words_and_gives_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "run")
    said = answer(capsys, "search", "Section 1 of 3", "--limit", "2")
    assert said.startswith("found by words\n1. ")
    for limit in (1, 2):
        few = json.loads(answer(capsys, "search", "Section 1 of 3", "--limit", str(limit), "--json"))
        assert len(few) == limit
    answer(capsys, "search", "garden", "--entity", "Nothing", code=1)
    found = json.loads(answer(capsys, "search", "garden", "--mode", "text", "--json"))
    assert found[0]["snippet"]
    assert found[0]["entity"] == "Document"
    assert "no facet by 'team'" in answer(capsys, "search", "garden", "--facet", "team", code=1)


def test_status_shows_state_and_size(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "NotIndexed" in answer(capsys, "status")
    answer(capsys, "run")
    (status,) = json.loads(answer(capsys, "status", "--json"))
    assert (status["state"], status["documents"]) == ("Indexed", 10)


def test_status_shows_that_the_source_is_away(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "run")
    (folder / "docs").rename(folder / "away")
    (status,) = json.loads(answer(capsys, "status", "--json"))
    assert status["state"] == "Indexed"  # What is served is as good as before.
    (note,) = status["notes"]
    assert f"{folder / 'docs'} cannot be listed" in note
    (folder / "away").rename(folder / "docs")
    (status,) = json.loads(answer(capsys, "status", "--json"))
    assert status["notes"] == []


def test_status_reports_when_the_alias_differs_from_the_record(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "run")
    (alias,) = (folder / ".instep" / "index").glob("*.alias-*.json")
    alias.write_text("garbage")
    (status,) = json.loads(answer(capsys, "status", "--json"))
    assert status["state"] == "Unknown"
    assert any("is damaged" in note for note in status["notes"])
    alias.unlink()
    (status,) = json.loads(answer(capsys, "status", "--json"))
    assert status["state"] == "Unknown"
    assert any("serves nothing" in note for note in status["notes"])


def test_check_finds_everything_in_order(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(folder / "no-java"))
    findings = {each["subject"]: each["health"] for each in json.loads(answer(capsys, "check", "--json"))}
    assert findings["source of Document"] == "ok"
    assert findings["target index"] == "ok"
    assert findings["ledger"] == "ok"
    assert not (folder / ".instep" / "ledger.db").exists()


def test_check_names_what_else_is_in_the_ledger(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "run")
    assert "ledger.db, also" not in answer(capsys, "check", "--json")
    declared = folder / "instep.yaml"
    declared.write_text(declared.read_text().replace("Document:", "Paper:"))
    findings = {each["subject"]: each for each in json.loads(answer(capsys, "check", "--json"))}
    said = "also of what is not declared here (by another project, or before): Document"
    assert findings["ledger"]["detail"] == f"sqlite:///.instep/ledger.db, {said}"


def test_plan_lists_the_files_that_no_include_takes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "docs" / "scan.tiff").write_bytes(b"x")
    assert "scan.tiff" not in answer(capsys, "plan", code=2)
    said = answer(capsys, "plan", "--skipped", code=2)
    assert f"  skipped file://{folder}/docs/scan.tiff  (no `include` matches it)" in said
    (plan,) = json.loads(answer(capsys, "plan", "--skipped", "--json", code=2))
    assert plan["skipped"] == [f"file://{folder}/docs/scan.tiff"]


@pytest.mark.parametrize(
    ("extra", "option", "health"),
    [
        ("", [], "ok"),
        ("engine: inline", [], "ok"),
        ("", ["--spark"], "problem"),
        ("engine: spark", [], "problem"),
        ("spark: {master: 'local[1]'}", [], "problem"),
    ],
)
def test_check_starts_spark_where_it_is_needed_or_declared_or_asked_for(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    option: list[str],
    health: str,
) -> None:

    def start(_: object) -> str:
        raise UserError("it was started")

    monkeypatch.setattr(doctor, "examine", start)
    corpus.project(folder, folder / "docs", extra=extra)
    found = json.loads(answer(capsys, "check", "--json", *option, code=0 if health == "ok" else 1))
    assert {each["subject"]: each["health"] for each in found}["Spark"] == health


def test_check_exits_with_1_and_names_missing_parts(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.project(folder, folder / "nowhere")
    monkeypatch.setenv("JAVA_HOME", str(folder / "no-java"))
    said = answer(capsys, "check", code=1)
    assert "✗ source of Document" in said
    assert "nowhere" in said
    assert "! Java" in said, "small waves need none"


def test_mistakes_are_answered_with_cause_place_and_hint(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = answer(capsys, "run", "Documnet", code=1)
    assert "Documnet" in said
    assert "Document" in said.split("hint")[1]
    assert "Allowed" in answer(capsys, "run", "--engine", "flink", code=1)
    assert "Allowed" in answer(capsys, "search", "x", "--mode", "fuzzy", code=1)
    assert "character 1" in answer(capsys, "search", "x", "--where", "nothing = 1", code=1)
    answer(capsys, "search", code=64)
    answer(capsys, "fly", code=64)


def test_an_error_in_the_project_names_file_line_and_allowed_values(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "instep.yaml"
    file.write_text(file.read_text().replace("chunk:", "chunck:"))
    said = answer(capsys, "plan", code=1)
    assert "instep.yaml:6" in said
    assert "chunck" in said
    assert "chunk" in said
