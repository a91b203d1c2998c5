"""Commands that have to do with namespaces, dead letters, status keys and checkpoints."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

import instep
from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.cli import main
from instep.container import Container
from instep.domain.events import WantCreated, WantFailed
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries
from instep.errors import Transient
from instep.ledger.ledger import Ledger
from instep.telemetry.texts import moment_text
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
    with closing(open_bus(None, ledger)) as bus:
        yield bus


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
        (["--namespace", "42"], "namespace 42/9970 lies in namespace 42"),
        (["Issue", "--namespace", "42/9970/1"], "namespace 42/9970/1 lies in namespace 42/9970"),
        (["Issue@7/1"], "namespace 7/1 lies in namespace 7: their rows would be the same"),
        (["Issue@5", "Issue@5/1"], "namespace 5/1 lies in namespace 5"),
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


# Dead letters.


@pytest.fixture
def letters(folder: Path, ledger: Ledger) -> Ledger:
    """What a message has asked for in namespace 7 has failed for good."""
    for entity in ("MergeRequest", "Issue"):
        made = WantCreated(
            want=f"letter-{entity}",
            refs=(f"{entity}@7",),
            as_of=ledger.now(),
            by="message",
            retries=Retries(max_attempts=1),
        )
        ledger.events.append([made, WantFailed(want=f"letter-{entity}", error="no column `path`")])
    return ledger


def test_dead_letters_are_listed(letters: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    found = answer(capsys, "letters", "list", "--entity", "Issue")
    assert [(each["ref"], each["attempts"], each["reason"]) for each in found] == [("Issue@7", 1, "no column `path`")]
    text = said(capsys, "letters", "list")
    assert "MergeRequest@7" in text
    assert "no column `path`" in text


def test_dead_letters_are_retried_or_forgotten(letters: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "letters", "drop", "MergeRequest@7") == "MergeRequest@7 is forgotten.\n"
    assert answer(capsys, "letters", "requeue", "--all") == ["Issue@7"]
    (want,) = answer(capsys, "wants")
    assert (want["refs"], want["attempts"], want["max_attempts"]) == (["Issue@7"], 0, 1)
    assert want["needed"] is not None
    assert said(capsys, "letters", "list") == "There are no dead letters.\n"
    assert said(capsys, "letters", "requeue", "--all") == "No dead letter is tried again.\n"
    assert "there is no dead letter of Issue@7" in said(capsys, "letters", "drop", "Issue@7", code=1)
    assert "no dead letter is named" in said(capsys, "letters", "drop", code=1)
    assert "together with --all" in said(capsys, "letters", "drop", "Issue@7", "--all", code=1)
    assert letters.events.verify().differences == ()


@pytest.mark.parametrize(
    ("ref", "why"),
    [
        ("Gone@global", "the project declares no partition Gone@global"),
        ("Issue@global", "the project declares no partition Issue@global"),
        ("User@7", "the project declares no partition User@7"),
        ("Issue@42", "namespace 42/9970 lies in namespace 42"),
    ],
)
def test_a_letter_of_what_the_project_cannot_have_is_not_tried_again(
    folder: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str], ref: str, why: str
) -> None:
    made = WantCreated(want="w", refs=(ref,), as_of=ledger.now(), retries=Retries())
    ledger.events.append([made, WantFailed(want="w", error="no source", final=True)])
    assert why in said(capsys, "letters", "requeue", ref, code=1)
    assert said(capsys, "letters", "requeue", "--all") == "No dead letter is tried again.\n"
    assert answer(capsys, "wants") == []
    assert [each["ref"] for each in answer(capsys, "letters", "list")] == [ref]
    assert answer(capsys, "letters", "drop", "--all") == [ref]
    assert said(capsys, "letters", "drop", "--all") == "No dead letter is forgotten.\n"


def test_a_dead_letter_is_gone_when_its_partition_is_fresh(
    folder: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str]
) -> None:
    made = WantCreated(want="w", refs=("User@global",), as_of=ledger.now(), retries=Retries(max_attempts=1))
    ledger.events.append([made, WantFailed(want="w", error="no column `id`")])
    assert [each["ref"] for each in answer(capsys, "letters", "list")] == ["User@global"]
    (part,) = begin(ledger, entities=["User"], slices=1)
    complete(ledger, part, 1)
    finish(ledger, part, JobState.COMPLETED)
    assert answer(capsys, "letters", "list") == []


def test_a_want_between_two_attempts_says_so(folder: Path, ledger: Ledger, capsys: pytest.CaptureFixture[str]) -> None:
    made = WantCreated(want="w", refs=("User@global",), as_of=ledger.now(), retries=Retries())
    ledger.events.append([made, WantFailed(want="w", error="no column `id`")])
    (want,) = answer(capsys, "wants")
    assert (want["state"], want["attempts"], want["max_attempts"]) == ("Idle", 1, 5)
    assert want["not_before"] == ledger.now() + 10_000
    assert "no column `id` (attempt 1 of 5)" in said(capsys, "wants")


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
    assert "no entity is named 'Pear'" in said(capsys, "status", "--entity", "Pear", code=1)


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
    assert (found["key"], found["state"], found["watermark"]) == (
        "global.User",
        "complete",
        checkpoint.watermark * 1_000,
    )
    assert ["global.User", "complete"] in [line.split()[:2] for line in said(capsys, "checkpoints").splitlines()]
    assert moment_text(checkpoint.watermark) in said(capsys, "checkpoints")
    assert said(capsys, "checkpoints", "--namespace", "7") == "No checkpoints: nothing is indexed yet.\n"


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
        "wanted": [],
        "dead_letters": [],
    }
