"""Commands that have to do with requests, handlers, status keys and checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.cli import main
from instep.container import Container
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.errors import Transient, UserError
from instep.ledger.ledger import Ledger
from instep.planning.context import Context
from instep.requests.handlers import Indexed
from tests.cli.ledgers import begin, complete, finish
from tests.cli.saying import answer, said, widest
from tests.doubles.clock import VirtualClock

PROJECT = """
name: forge
ledger: sqlite:///ledger.db
namespaces: [42/9970, 7]
handlers:
  namespace: {max_attempts: 1, backoff: [0s]}
targets:
  graph: {type: clickhouse, uri: graph}
entities:
  User: {source: {type: spark, path: data/users}, key: id}
  MergeRequest: {source: {type: spark, path: data/mrs}, key: id, scope: path}
  Issue: {source: {type: spark, path: data/issues}, key: id, scope: path}
"""
MR, ISSUE = "status.42.9970.MergeRequest", "status.42.9970.Issue"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project of tables, and the current folder in it."""
    (tmp_path / "instep.yaml").write_text(PROJECT)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bus(ledger: Ledger, clock: VirtualClock) -> Iterator[Bus]:
    with closing(open_bus(None, ledger, clock=clock)) as bus:
        yield bus


class Indexer:
    """In the place of the real one: done is what is asked, or what a test planned goes wrong."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, int]] = []
        self.wrong: Exception | None = None

    def index(self, ref: PartitionRef, watermark: int, demand: Callable[[], None]) -> Indexed:
        self.asked.append((str(ref), watermark))
        if self.wrong is not None:
            raise self.wrong
        return Indexed(IndexState.INDEXED, ["3 rows written"])


@pytest.fixture
def indexer(monkeypatch: pytest.MonkeyPatch) -> Indexer:
    indexer = Indexer()

    def stand_in(_container: Container, _context: Context, *, wait_seconds: float) -> Indexer:
        assert wait_seconds == 0.0
        return indexer

    monkeypatch.setattr(Container, "indexer", stand_in)
    return indexer


# Wants for all that is declared, or one namespace.


def _wanted(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    return [each["refs"] for each in answer(capsys, "want", *arguments)]


def test_a_want_without_a_name_is_one_for_each_entity(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So that none waits for another."""
    assert _wanted(capsys) == [
        ["User@global"],
        ["MergeRequest@42/9970", "MergeRequest@7"],
        ["Issue@42/9970", "Issue@7"],
    ]
    assert len(answer(capsys, "wants")) == 3


def test_a_namespace_is_wanted_whether_it_is_declared_or_not(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _wanted(capsys, "--namespace", "8/") == [["MergeRequest@8"], ["Issue@8"]]
    named = answer(capsys, "want", "Issue", "--namespace", "7", "--namespace", "8", "--fresh-within", "5m")
    assert (named["refs"], named["fresh_within"]) == (["Issue@7", "Issue@8"], 300_000)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--namespace", "42", "--namespace", "42/9970"], "namespace 42/9970 lies in namespace 42"),
        (["--namespace", "global"], "global is not a namespace"),
        (["User", "--namespace", "7"], "User has no `scope`"),
        (["Issue@7", "--namespace", "7"], "names a namespace itself"),
        (["Pear", "--namespace", "7"], "no entity is named 'Pear'"),
    ],
)
def test_an_invalid_want_asks_for_nothing(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], why: str
) -> None:
    assert why in said(capsys, "want", *arguments, code=1)
    assert answer(capsys, "wants") == []


# Dispatch, and what handlers do.


def test_all_declared_entities_are_requested_and_indexed(
    folder: Path, clock: VirtualClock, indexer: Indexer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = answer(capsys, "dispatch")
    now = clock.now()
    assert asked == [
        {"scope": "global", "watermark": now, "entities": ["User"]},
        {"scope": "42/9970", "watermark": now, "entities": ["MergeRequest", "Issue"]},
        {"scope": "7", "watermark": now, "entities": ["MergeRequest", "Issue"]},
    ]
    refs = ["Issue@42/9970", "Issue@7", "MergeRequest@42/9970", "MergeRequest@7", "User@global"]
    assert main(["serve-handlers", "--until-idle", "--json"]) == 0
    assert sorted(indexer.asked) == [(ref, now * 1_000) for ref in refs]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "Indexed; 3 rows written" in [line["message"] for line in lines if line["entity"] == "Issue@7"]
    assert main(["serve-handlers", "--until-idle"]) == 0
    assert len(indexer.asked) == len(refs)  # nothing is done twice


def test_dispatch_asks_for_the_named_scope(
    folder: Path, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    text = said(capsys, "dispatch", "--namespace", "42/9970/", "--watermark", "2026-01-31T12:00:00Z")
    assert text.startswith("42/9970: 2 entities are asked to be fresh as of 2026-01-31")
    assert said(capsys, "dispatch", "--global").startswith("global: 1 entity is asked to be fresh as of ")
    both = answer(capsys, "dispatch", "--global", "--namespace", "8", "--namespace", "8/")
    assert [each["scope"] for each in both] == ["global", "8"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--namespace", "42", "--namespace", "42/9970"], "namespace 42/9970 lies in namespace 42"),
        (["--namespace", "global"], "global is not a namespace"),
        (["--namespace", "x"], "neither 'global' nor a traversal path"),
        (["--namespace", "1" * 160], "at most 150 characters"),
        (["--watermark", "2999-01-01"], "the watermark is in the future"),
        (["--watermark", "2026-01-01", "--every", "5m"], "Leave --watermark out"),
    ],
)
def test_an_invalid_dispatch_is_refused(
    folder: Path, clock: VirtualClock, capsys: pytest.CaptureFixture[str], options: list[str], why: str
) -> None:
    assert why in said(capsys, "dispatch", *options, code=1)


def test_dispatch_repeats_though_services_are_away(
    folder: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    slept: list[float] = []
    real = instep.Instep.dispatch

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        clock.milliseconds += round(seconds * 1_000)
        if len(slept) == 3:
            raise KeyboardInterrupt

    def dispatch(self: instep.Instep, namespaces: Iterable[str] = (), **more: Any) -> Any:
        if len(slept) == 1:
            raise Transient("the bus does not answer")
        return real(self, namespaces, **more)

    monkeypatch.setattr(clock, "sleep", sleep)
    monkeypatch.setattr(instep.Instep, "dispatch", dispatch)
    assert main(["dispatch", "--every", "5m", "--namespace", "7", "--json"]) == 0
    out, err = capsys.readouterr()
    assert slept == [300.0] * 3
    assert out.count('"scope": "7"') == 2
    assert "the bus does not answer" in err


def test_a_stopped_server_exits_with_0(
    folder: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(instep.Instep, "serve_handlers", interrupted)
    assert main(["serve-handlers"]) == 0
    assert "stopped" in capsys.readouterr().err


# Dead letters.


@pytest.fixture
def letters(folder: Path, clock: VirtualClock, indexer: Indexer, capsys: pytest.CaptureFixture[str]) -> int:
    """Everything in namespace 7 has failed for good; when it was asked."""
    indexer.wrong = UserError("no column `path`, token=hunter2")
    assert main(["dispatch", "--namespace", "7"]) == 0
    assert main(["serve-handlers", "--until-idle", "--quiet"]) == 0
    return clock.now()


def test_dead_letters_are_listed(letters: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "letters", "list", "--entity", "Issue")
    assert [(each["ref"], each["attempts"], each["reason"]) for each in found] == [
        ("Issue@7", 1, "no column `path`, token=***")
    ]
    text = said(capsys, "letters", "list")
    assert "MergeRequest@7" in text
    assert "no column `path`, token=***" in text


def test_dead_letters_are_retried_or_forgotten(
    letters: int, indexer: Indexer, capsys: pytest.CaptureFixture[str]
) -> None:
    indexer.wrong = None
    assert said(capsys, "letters", "drop", "MergeRequest@7") == "MergeRequest@7 is forgotten.\n"
    assert answer(capsys, "letters", "requeue", "--all") == ["Issue@7"]
    indexer.asked.clear()
    assert main(["serve-handlers", "--until-idle"]) == 0
    assert [ref for ref, _ in indexer.asked] == ["Issue@7"]
    assert said(capsys, "letters", "list") == "There are no dead letters.\n"
    assert said(capsys, "letters", "requeue", "--all") == "There are no dead letters.\n"
    assert "there is no dead letter of Issue@7" in said(capsys, "letters", "drop", "Issue@7", code=1)
    assert "no dead letters are named" in said(capsys, "letters", "drop", code=1)
    assert "and --all is given" in said(capsys, "letters", "drop", "Issue@7", "--all", code=1)


# Status.


def test_a_matrix_of_namespaces_and_entities(folder: Path, bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    bus.status.put(MR, {"state": "Indexed"})
    bus.status.put(ISSUE, {"state": "Backfilling"})
    bus.status.put("status.8.Issue", {"state": "Indexed"})  # not declared, but known
    bus.status.put("status.8.MergeRequest", {"state": "wrong"})
    bus.status.put("status.9", {"state": "Indexed"})
    found = answer(capsys, "status", "MergeRequest", "--entity", "Issue")
    assert found["entities"] == []
    assert found["matrix"] == {
        "state": "Unknown",
        "entities": {"MergeRequest": "Unknown", "Issue": "NotIndexed"},
        "namespaces": [
            {"namespace": name, "state": state, "entities": {"MergeRequest": mr, "Issue": issue}}
            for name, state, mr, issue in [
                ("42/9970", "Backfilling", "Indexed", "Backfilling"),
                ("7", "NotIndexed", "NotIndexed", "NotIndexed"),
                ("8", "Unknown", "Unknown", "Indexed"),
                ("9", "Indexed", "Indexed", "Indexed"),
            ]
        ],
        "notes": [
            "status.8.MergeRequest says 'wrong', which is not a state",
            "status.9 has the old format: it stands for 2 of its entities",
        ],
    }
    text = said(capsys, "status", "--entity", "Issue", "--entity", "MergeRequest")
    assert "status.9 has the old format" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["namespace", "all", "MergeRequest", "Issue"] in rows
    assert ["42/9970", "Backfilling", "Indexed", "Backfilling"] in rows
    assert ["all", "Unknown", "Unknown", "NotIndexed"] in rows


def test_one_namespace_and_one_entity(folder: Path, bus: Bus, capsys: pytest.CaptureFixture[str]) -> None:
    bus.status.put(MR, {"state": "Indexed"})
    bus.status.put("status.7.MergeRequest", {"state": "Error"})
    found = answer(capsys, "status", "--namespace", "42/9970", "--entity", "MergeRequest")
    assert found["matrix"]["state"] == "Indexed"
    assert [each["namespace"] for each in found["matrix"]["namespaces"]] == ["42/9970"]
    assert "it is in no namespace" in said(capsys, "status", "--namespace", "7", "--entity", "User", code=1)
    assert "no entity is named 'Nobody'" in said(capsys, "status", "--entity", "Nobody", code=1)


def test_global_entities_are_shown_as_before(
    folder: Path, bus: Bus, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[list[str]] = []

    def status(_: instep.Instep, names: Iterable[str], **__: object) -> list[object]:
        asked.append(list(names))
        return []

    monkeypatch.setattr(instep.Instep, "status", status)
    assert answer(capsys, "status")["matrix"]["state"] == "NotIndexed"
    assert answer(capsys, "status", "--entity", "User") == []
    assert asked == [["User"], ["User"]]


def test_a_matrix_that_is_too_wide_lists_unindexed_entities(
    folder: Path, bus: Bus, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"Entity{n}" for n in range(20)]
    more = "".join(f"  {name}: {{source: {{type: spark, path: d}}, key: id, scope: path}}\n" for name in names)
    (folder / "instep.yaml").write_text(PROJECT + more)
    for name in names[4:]:
        bus.status.put(f"status.7.{name}", {"state": "Indexed"})
    text = said(capsys, "status", *[each for name in names for each in ("--entity", name)])
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "7 NotIndexed 16 Indexed, 4 NotIndexed (Entity0, Entity1, Entity2, …)" in lines
    assert "Entity9 NotIndexed 1 Indexed, 1 NotIndexed (42/9970)" in lines
    assert "all NotIndexed" in lines
    assert widest(text) <= 120


def test_a_bus_that_cannot_be_read_is_unknown(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_: object) -> Bus:
        raise Transient("the bus does not answer at nats://bot:hunter2@h")

    monkeypatch.setattr(Container, "bus", away)
    found = answer(capsys, "status", "--entity", "Issue")
    assert found["matrix"]["state"] == "Unknown"
    assert found["matrix"]["notes"] == ["the status keys cannot be read: the bus does not answer at nats://h"]


# Checkpoints.


def test_checkpoints_and_slices_of_a_running_build(
    folder: Path, ledger: Ledger, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    (part,) = begin(ledger, entities=["User"], slices=3)
    complete(ledger, part, 1)
    keys = [(each["key"], each["state"], each["watermark"]) for each in answer(capsys, "checkpoints")]
    assert keys == [
        ("global.User.p0of3", "completed", None),
        ("global.User.p1of3", "pending", None),
        ("global.User.p2of3", "pending", None),
    ]
    complete(ledger, part, 2)
    finish(ledger, part, JobState.COMPLETED)
    [found] = answer(capsys, "checkpoints", "--entity", "User")
    checkpoint = ledger.checkpoints.get(PartitionRef("User"))
    assert checkpoint is not None
    assert (found["key"], found["state"], found["watermark"]) == ("global.User", "complete", checkpoint.watermark)
    assert ["global.User", "complete"] in [line.split()[:2] for line in said(capsys, "checkpoints").splitlines()]
    assert said(capsys, "checkpoints", "--namespace", "7") == "No checkpoints: nothing of it is indexed.\n"


def test_checkpoints_of_namespaces(
    folder: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refs = [PartitionRef.parse(text) for text in ("Issue@42/9970", "Issue@99")]  # the other one is not declared
    for number, ref in enumerate(refs):
        monkeypatch.setattr("tests.cli.ledgers.PartitionRef", lambda _, ref=ref: ref)
        (part,) = begin(ledger, job_id=f"job-{number}", slices=1)
        complete(ledger, part, 1, job_id=f"job-{number}")
        finish(ledger, part, JobState.COMPLETED, job_id=f"job-{number}")
    keys = [each["key"] for each in answer(capsys, "checkpoints")]
    assert keys == ["ns.42/9970.Issue", "ns.99.Issue"]
    assert [each["key"] for each in answer(capsys, "checkpoints", "--namespace", "99")] == ["ns.99.Issue"]
    assert answer(capsys, "checkpoints", "--entity", "MergeRequest") == []


# Namespaces.


def test_without_a_terminal_there_is_no_question(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Confirm with --yes" in said(capsys, "namespace", "delete", "7", code=1)
    assert not (folder / "ledger.db").exists()


def test_a_namespace_is_deleted(
    folder: Path, bus: Bus, clock: VirtualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a real target; what is deleted there is up to its contract."""
    (folder / "instep.yaml").write_text(PROJECT.replace("type: clickhouse", "type: lance"))
    for key in (MR, "status.42.9970.1.Issue", "status.7.Issue"):
        bus.status.put(key, {"state": "Indexed"})
    capsys.readouterr()
    assert main(["namespace", "delete", "42/9970", "--yes"]) == 0
    out, err = capsys.readouterr()
    assert out == "Namespace 42/9970 is deleted: 2 partitions, 2 status keys.\n"
    assert "`namespaces:` still lists 42/9970" in err
    assert [each.key for each in bus.status.under("status")] == ["status.7.Issue"]
    assert answer(capsys, "namespace", "delete", "9", "--yes") == {
        "namespace": "9",
        "partitions": [],
        "status_keys": [],
        "dead_letters": [],
    }


def test_the_policy_is_that_of_the_project(folder: Path) -> None:
    found = {each.entity: each for each in instep.load(folder)._handlers(None)}
    assert (found["User"].kind, found["User"].policy) == (Kind.GLOBAL, Policy())
    assert (found["Issue"].kind, found["Issue"].policy) == (Kind.NAMESPACE, Policy(max_attempts=1, backoff=(0,)))
