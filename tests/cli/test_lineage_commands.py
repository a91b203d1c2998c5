"""`instep why`, `lineage`, `ledger`, `gc` and the past of `status`: what they print, their JSON, exit codes, errors."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.answers.instances import instance_answer
from instep.answers.lineage import Edge, Lineage, Node
from instep.cli import graphs, main
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.lineage import Link
from instep.telemetry.texts import visible
from tests.jobs.projects import Home, home

Say = Callable[..., str]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A project, and the current folder in it."""
    monkeypatch.chdir(tmp_path)
    return home(tmp_path)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Say:
    """What a command printed; its errors too when it should fail."""

    def said(*arguments: str, code: int = 0) -> str:
        capsys.readouterr()
        assert main(list(arguments)) == code, capsys.readouterr()
        out = capsys.readouterr()
        assert "Traceback" not in out.err
        return out.out + out.err if code else out.out

    return said


def answer(say: Say, *arguments: str) -> Any:
    return json.loads(say(*arguments, "--json"))


def test_why_shows_instance_job_file_and_code(place: Home, say: Say) -> None:
    result = place.run()
    text = say("why", "Document", place.uri(3))
    found = answer(say, "why", "index", place.uri(3))
    for each in (str(result.job_id), found["instance"]["uuid"], found["row"]["document_hash"], "made for: first build"):
        assert each in text
    assert found["job"]["id"] == result.job_id
    assert found["document"]["uri"] == place.uri(3)
    assert found["window"]["floor"] == 0
    assert found["wants"] == found["inputs"] == []
    place.change(3, "more at the end")
    place.run()
    assert "changed since, but not in this chunk" in say("why", "Document", place.uri(3))


def git(folder: Path, *arguments: str) -> str:
    command = ("git", "-c", "user.name=developer", "-c", "user.email=developer@example.org", *arguments)
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_code_has_a_revision_where_there_is_version_control(place: Home, say: Say) -> None:
    place.run()
    assert "revision    none: the project is not under version control" in say("why", "Document", place.uri(3))
    assert "revision" not in say("history", "Document")
    git(place.root, "init", "--quiet")
    git(place.root, "add", "instep.yaml")
    git(place.root, "commit", "--quiet", "-m", "one")
    commit = git(place.root, "rev-parse", "HEAD")
    say("rebuild", "Document")
    place.run()
    assert f"revision    {commit}\n" in say("why", "Document", place.uri(3))
    assert f", revision {commit[:8]}\n" in say("history", "Document")
    with (place.root / "instep.yaml").open("a", encoding="utf-8") as file:
        file.write("# not committed\n")
    say("rebuild", "Document")
    place.run()
    assert f"revision    {commit}+\n" in say("why", "Document", place.uri(3))
    assert f", revision {commit[:8]}+\n" in say("history", "Document")
    assert answer(say, "lineage", "Document")["nodes"][0]["instance"]["revision"] == f"{commit}+"


def test_the_past_says_which_generation_was_promoted(place: Home, say: Say) -> None:
    place.run()
    assert "promoted" not in say("status", "--at", "2999-01-01"), "there is one only"
    say("run", "--quiet", "--engine", "inline", "--generation", "v2")
    then = datetime.now(UTC).isoformat()
    assert "Document: generation '' was promoted." in say("status", "--at", then)
    time.sleep(0.002)
    say("promote", "Document", "--generation", "v2")
    assert "Document: generation v2 was promoted." in say("status", "--at", "2999-01-01")
    assert "Document: generation '' was promoted." in say("status", "--at", then)


def test_why_of_nothing_helps(place: Home, say: Say) -> None:
    assert "instep run" in say("why", "Document", "x", code=1)
    place.run()
    assert "search --json" in say("why", "Document", "x", code=1)
    assert "Declared: index, Document" in say("why", "nothing", "x", code=1)
    assert "did you mean Document?" in say("why", "Documnt", "x", code=1)
    assert "did you mean Document?" in say("run", "Documnt", code=1)
    say("why", "Document", "x", "y", code=64)
    say("why", "Document", code=64)
    assert json.loads(say("why", "Document", "x", "--json", code=1).partition("error:")[0])["error"]["exit_code"] == 1


def test_why_takes_each_name_of_a_row_that_search_prints(place: Home, say: Say) -> None:
    """The path of its file, as people read it, and the ids and the address, as programs do."""
    place.run()
    hit = answer(say, "search", "document", "--limit", "1")[0]
    (path,) = {each for each in say("search", "document", "--limit", "1").split() if each.endswith(".md")}
    for name in (path, hit["chunk_id"], hit["document_id"], hit["source_uri"]):
        found = answer(say, "why", name)
        assert found["row"]["source_uri"] == hit["source_uri"], name
        assert found["row"]["document_id"] == hit["document_id"], name


def test_why_tells_of_a_file_without_a_row_what_became_of_it(place: Home, say: Say) -> None:
    docs = place.root / "docs"
    (docs / "binary.md").write_bytes(b"a\0b")
    (docs / "picture.png").write_bytes(b"png")
    (docs / "node_modules").mkdir()
    (docs / "node_modules" / "read.md").write_text("words")
    (place.root / "beside.md").write_text("words")
    place.run()
    (docs / "later.md").write_text("words")
    told = {
        name: say("why", name, code=1) for name in ("docs/binary.md", "docs/picture.png", "docs/node_modules/read.md")
    }
    told |= {name: say("why", name, code=1) for name in ("beside.md", "docs/later.md", "docs/never.md")}
    for name, reason in {
        "docs/binary.md": "it failed (parse): binary, not text: NUL at byte 1",
        "docs/picture.png": "no `include` matches it",
        "docs/node_modules/read.md": "`exclude` leaves it out",
        "beside.md": "it is in none of the folders of the source",
        "docs/later.md": "no run has seen it yet",
        "docs/never.md": "there is no such file",
    }.items():
        assert reason in " ".join(told[name].split()), name


def test_why_tells_of_a_file_that_is_left_out_on_purpose(place: Home, say: Say) -> None:
    declared = place.root / "instep.yaml"
    limits = "    limits: {max_document_bytes: 100kB, on_oversize: skip}\n"
    declared.write_text(declared.read_text().replace("  Document:\n", f"  Document:\n{limits}", 1))
    (place.root / "docs" / "large.md").write_text("words " * 20_000)
    place.run()
    told = " ".join(say("why", "docs/large.md", code=1).split())
    assert "it is left out: " in told
    assert "failed" not in told


def test_lineage_and_status_go_back_in_time(place: Home, say: Say) -> None:
    first = place.run()
    (old,) = answer(say, "history", "Document")
    then = _after(old["live_at"])
    say("taint", "Document", "--why", "doubtful")
    second = place.run()
    new = answer(say, "history", "Document")[0]
    text = say("lineage", "Document").splitlines()
    assert text[0].startswith(f"Document@global {new['uuid'][:8]}: Live, made for: taint")
    assert text[1].startswith(f"  in place of Document@global {old['uuid'][:8]}: Tainted")
    (node,) = answer(say, "lineage", "Document", "--at", then)["nodes"]
    assert (node["uuid"], node["instance"]["state"]) == (old["uuid"], "Live")
    (at,) = answer(say, "status", "--at", then)
    assert (at["instance"]["uuid"], at["instance"]["state"], at["served"]["uuid"]) == (
        old["uuid"],
        "Live",
        old["uuid"],
    )
    assert old["uuid"][:8] in say("status", "--at", then)
    for result, uuid in ((first, old["uuid"]), (second, new["uuid"])):
        (seen,) = answer(say, "status", "Document", "--job", str(result.job_id)[:8])
        assert seen["instance"]["uuid"] == uuid
    (before,) = answer(say, "status", "--at", "2001-01-01")
    assert before["instance"] is None


def _after(milliseconds: int) -> str:
    """A time just after; the next events are later than it."""
    while time.time() * 1000 <= milliseconds + 2:
        time.sleep(0.001)
    return datetime.fromtimestamp((milliseconds + 1) / 1000, UTC).isoformat()


def test_questions_about_the_past_that_make_no_sense_are_refused(place: Home, say: Say) -> None:
    assert "2026-01-31T12:00" in say("status", "--at", "yesterday", code=64)
    assert "not both" in say("status", "--at", "2026-01-31", "--job", "1f0c", code=1)
    assert "nothing has run yet" in say("status", "--job", "1f0c", code=1)
    assert "too short" in say("status", "--job", "", code=1), "an empty variable of a script is not now"
    assert "instep run" in say("lineage", "Document", code=1)
    assert "'--format' / '-f': 'png' is not one of 'text'" in say("lineage", "Document", "--format", "png", code=64)
    assert not (place.root / ".instep").exists()


def test_lineage_as_a_drawing(place: Home, say: Say) -> None:
    place.run()
    dot = say("lineage", "Document", "--format", "dot")
    assert dot.startswith("digraph lineage {")
    assert dot.rstrip().endswith("}")
    page = say("lineage", "Document", "--format", "html")
    assert page.startswith("<!DOCTYPE html>")
    assert json.loads(say("lineage", "Document", "--format", "json")) == answer(say, "lineage", "Document")


def hostile(text: str) -> Lineage:
    made = Instance("1f0c0000-0000-4000-8000-000000000001", text, text, 1, None, Reason.FIRST, InstanceState.LIVE, 1)
    gone = "2f0c0000-0000-4000-8000-000000000002"
    shown = instance_answer(made)
    nodes = (
        Node(uuid=made.uuid, instance=shown, state=made.state),
        Node(uuid=gone, instance=None, state=None),
    )
    edges = (Edge(from_=made.uuid, to=gone, link=Link.INPUT),)
    return Lineage(at=1, instance=made.uuid, nodes=nodes, edges=edges, users=(shown,))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onclick", "style"}


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", '"><img src=x onerror=y>', "&lt;", "\\", '"; x', "\x1b[2J"]
)
def test_names_are_data_in_every_format(text: str) -> None:
    tags = Tags()
    page = "\n".join(graphs.as_html(hostile(text)))
    tags.feed(page)
    assert tags.found <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "p", "svg", "line", "rect", "text"),
        *("table", "tr", "th", "td"),
    }
    shown = [page, "\n".join(graphs.as_text(hostile(text))), "\n".join(graphs.as_dot(hostile(text)))]
    assert not any("\x1b" in each for each in shown)
    first = shown[2].splitlines()[2]
    label = first[first.index("[label=") + len("[label=") : first.rindex("]")]
    assert json.loads(label).startswith(visible(text))


def test_the_ledger_is_verified_and_rebuilt(place: Home, say: Say) -> None:
    assert "0 events" in say("ledger", "verify")
    assert "Nothing differed" in say("ledger", "rebuild")
    assert not (place.root / ".instep").exists()
    place.run()
    assert "The stored state agrees with the log." in say("ledger", "verify")
    before = answer(say, "history", "Document")
    with closing(sqlite3.connect(place.root / ".instep" / "ledger.db")) as ledger, ledger:
        ledger.execute("DELETE FROM canonical")
    broken = say("ledger", "verify", code=1)
    assert "differs: canonical instance of" in broken
    assert "instep ledger rebuild" in broken
    assert "Rebuilt." in say("ledger", "rebuild")
    assert answer(say, "ledger", "verify")["differences"] == []
    assert answer(say, "history", "Document") == before


def test_events_that_cannot_be_read_are_named_and_stop_nothing(place: Home, say: Say) -> None:
    place.run()
    with closing(sqlite3.connect(place.root / ".instep" / "ledger.db")) as ledger, ledger:
        [(last, at)] = ledger.execute("SELECT last, at FROM event_head").fetchall()
        strange = [
            (last + 1, at, "universe.ended\x1b[2J", 1, "{}"),
            (last + 2, at, "want.created", 1, '{"want": '),
            (last + 3, at, "want.canceled", 1, '{"want": "unknown"}'),
        ]
        ledger.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", strange)
        ledger.execute("UPDATE event_head SET last = last + 3")
    told = say("ledger", "verify")
    assert f"1 skipped: unknown-kind\n  event {last + 1}: no event is called 'universe.ended" in told
    assert "\x1b" not in told
    assert f"1 skipped: malformed\n  event {last + 2}: want.created: " in told
    assert f"1 skipped: unknown-want\n  event {last + 3}: " in told
    assert [each["sequence"] for each in answer(say, "ledger", "verify")["skips"]] == [last + 1, last + 2, last + 3]
    assert "is there as of" in say("want", "Document"), "it is no stop"
    assert "The stored state agrees with the log." in say("ledger", "verify")


def month_old(place: Home, *job_ids: str) -> None:
    """Let jobs have ended 31 days ago."""
    ago = 31 * 24 * 3_600_000
    with closing(sqlite3.connect(place.root / ".instep" / "ledger.db")) as ledger, ledger:
        for each in job_ids:
            ledger.execute(
                "UPDATE jobs SET created_at = created_at - ?, finished_at = finished_at - ? WHERE id = ?",
                (ago, ago, each),
            )


def test_a_run_forgets_old_jobs_and_answers_say_so(place: Home, say: Say) -> None:
    jobs = [str(place.run().job_id)]
    for number in (2, 3):
        place.path(number).write_text(f"Another text of {number}.")
        jobs.append(str(place.run().job_id))
    month_old(place, *jobs)
    kept = answer(say, "gc", "--dry-run")
    assert (kept["jobs"], kept["slices"] > 0, kept["collected"]) == (1, True, False)  # The newest stays, and the first.
    assert "1 job with" in say("gc", "--dry-run")
    place.path(4).write_text("Another text of 4.")
    jobs.append(str(place.run().job_id))
    assert [each["id"] for each in answer(say, "jobs")] == [jobs[3], jobs[0]]
    origins = {number: answer(say, "why", "Document", place.uri(number)) for number in range(2, 6)}
    forgotten = {number: each["forgotten"] for number, each in origins.items()}
    assert [number for number, each in origins.items() if each["job"] is None] == [2, 3]
    assert (forgotten[4], forgotten[5], forgotten[2]) == (None, None, forgotten[3])
    assert [origins[number]["job"]["id"] for number in (4, 5)] == [jobs[3], jobs[0]]
    day = datetime.fromtimestamp(forgotten[2] / 1000).astimezone().strftime("%Y-%m-%d")
    assert re.search(f"job +before {day}.*: forgotten \\(retention: 30d\\)", say("why", "Document", place.uri(2)))
    assert "Old ones are forgotten" in say("status", "--job", jobs[1], code=1)
    assert answer(say, "ledger", "verify")["differences"] == []
    assert "Nothing is old enough" in say("gc")


def test_gc_lists_what_it_would_remove_and_removes_it(place: Home, say: Say) -> None:
    assert "Nothing is old enough" in say("gc")
    assert not (place.root / ".instep").exists()
    for _ in range(3):
        say("rebuild", "Document")
        place.run()
    oldest = answer(say, "history", "Document")[-1]
    _after(oldest["ended_at"])
    assert "Nothing is old enough" in say("gc")
    looked = answer(say, "gc", "--keep", "1ms", "--dry-run")
    assert (looked["instances"], looked["collected"]) == ([oldest["uuid"]], False)
    assert "Document@global: 1 instance" in say("gc", "--keep", "1ms", "--dry-run")
    assert "Forgotten: 1 instance, 0 wants." in say("gc", "--keep", "1ms")
    assert oldest["uuid"] not in [each["uuid"] for each in answer(say, "history", "Document")]
    assert "collected" not in say("lineage", "Document")
    assert answer(say, "ledger", "verify")["differences"] == []
    say("gc", "--keep", "soon", code=64)


FEED = """
name: test
engine: inline
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Note:
    source: {type: feed, path: feed.jsonl}
    embed: {type: hashing}
"""


def test_why_tells_of_a_document_of_a_feed_without_a_row_what_became_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "feed.jsonl").write_text('{"id": "1", "text": "words"}\n{"id": "2", "text": ""}\n')
    (tmp_path / "instep.yaml").write_text(FEED)
    instep.load(tmp_path).run()
    assert "it has been read, and has no text" in " ".join(say("why", "feed://Note/2", code=1).split())
    told = " ".join(say("why", "Note", "feed://Note/3", code=1).split())
    assert "no run has seen it, or it is gone from the source again" in told
    assert "search --json" in told, "it may be asked for in a wrong form"


def test_why_says_nothing_of_what_only_its_readers_may_know_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, say: Say
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = ('{"id": "1", "text": "words", "metadata": {"who": ["alice"]}}', '{"id": "2", "text": ""}')
    (tmp_path / "feed.jsonl").write_text("".join(f"{each}\n" for each in lines))
    readers = '    columns: {who: "string[]"}\n    readers: who\n'
    (tmp_path / "instep.yaml").write_text(FEED + readers)
    instep.load(tmp_path).run()
    told = [say("why", "Note", f"feed://Note/{each}", code=1) for each in (1, 2, 3)]
    assert len({re.sub(r"Note/\d", "", each) for each in told}) == 1, told
    assert "no run has seen it" not in told[1]
