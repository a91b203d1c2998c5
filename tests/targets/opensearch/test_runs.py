"""A folder of documents in OpenSearch, as a user has it: by the command line, through outages, and beside zombies."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.errors import Away, Fenced
from instep.jobs import wave
from instep.targets.opensearch import bulk as module
from instep.targets.opensearch.bulk import Bulk, Pace, deletes
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.target import OpenSearchTarget
from tests.doubles.troubled_server import TroubledServer
from tests.e2e import corpus, truth
from tests.e2e.rebuilding import rebuilt_while_it_changes
from tests.targets.opensearch.conftest import forget_all

ALIAS = "Document"


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTarget]:
    target = OpenSearchTarget(opensearch)
    yield target
    forget_all(target)


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    corpus.write(tmp_path / "docs", range(30))
    return tmp_path / "docs"


def declare(docs: Path, uri: str, *, settings: str = "") -> Path:
    root = docs.parent / "project"
    file = corpus.project(root, docs)
    text = file.read_text().replace("type: lance, uri: .instep/index", f"type: opensearch, uri: '{uri}'{settings}")
    file.write_text(text.replace("name: test", "name: test\nengine: inline"))
    return root


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What a user types, and its answer."""

    def called(root: Path, *words: str) -> Any:
        code = main([*words, "--project", str(root), "--json"])
        said = capsys.readouterr()
        assert code == 0, said.err
        return json.loads(said.out)

    return called


def content(target: OpenSearchTarget) -> truth.Truth:
    """What readers of the alias find, whatever Instep knows."""
    body = {"size": 10_000, "_source": ["document_id", "text"]}
    hits = target.indexes.connection.ask("POST", f"/{ALIAS}/_search", body)["hits"]["hits"]
    return Counter((each["_source"]["document_id"], each["_source"]["text"]) for each in hits)


def test_an_alias_that_was_dropped_is_made_again_though_nothing_has_changed(
    target: OpenSearchTarget, docs: Path, command: Callable[..., Any]
) -> None:
    root = declare(docs, target.uri)
    command(root, "run")
    before = content(target)
    (index,) = target.indexes.behind(ALIAS)
    target.indexes.connection.ask("DELETE", f"/{index}/_alias/{ALIAS}")
    (done,) = command(root, "run")
    assert (done["state"], done["counts"]["read"], done["notes"]) == ("COMPLETED", 0, [])
    assert content(target) == before
    assert [each["job"] for each in command(root, "run")] == [None]


def test_a_folder_is_kept_in_step_by_the_command_line(
    target: OpenSearchTarget, docs: Path, command: Callable[..., Any]
) -> None:
    root = declare(docs, target.uri)
    (built,) = command(root, "run")
    assert (built["state"], built["counts"]["written"]) == ("COMPLETED", 30)
    corpus.path(docs, 1).write_text(f"{corpus.text(1)}\n\nAnd zebras.\n")
    corpus.path(docs, 3).unlink()
    (changed,) = command(root, "run")
    assert (changed["counts"]["written"], changed["counts"]["deleted"], changed["notes"]) == (1, 1, [])
    (hit, *_) = command(root, "search", "zebras", "--mode", "text")
    assert "zebras" in hit["text"]
    assert truth.difference(truth.expected(docs), content(target)) == ""
    # Who was at work under the first epoch, and comes late, removes nothing that is newer.
    late = Bulk(target.indexes.connection, coded(str(target.served(ALIAS))), Pace.fullest(1_000_000, 1))
    with pytest.raises(Fenced):
        late.send(deletes([hit["chunk_id"]], 1))
    assert truth.difference(truth.expected(docs), content(target)) == ""


def test_a_server_that_is_away_for_a_while_loses_nothing(target: OpenSearchTarget, docs: Path) -> None:
    with TroubledServer(target.uri, ["fine", "shut 4"]) as server:
        project = instep.load(declare(docs, server.url, settings=", max_payload_bytes: 100000, max_requests: 1"))
        (built,) = project.run()
        assert (server.turned_away, server.quiet) == (4, True)
    assert (built.counts.written, built.counts.failed) == (30, 0)
    assert truth.difference(truth.expected(docs), content(target)) == ""


@pytest.mark.long
def test_a_server_that_is_away_for_a_minute_loses_nothing(target: OpenSearchTarget, docs: Path) -> None:
    with TroubledServer(target.uri, ["fine", "shut"]) as server:
        project = instep.load(declare(docs, server.url, settings=", max_payload_bytes: 100000, max_requests: 1"))
        back = threading.Timer(60, server.open)
        back.start()
        (built,) = project.run()
        assert back.finished.is_set()
    assert (built.counts.written, built.counts.failed) == (30, 0)
    assert truth.difference(truth.expected(docs), content(target)) == ""


def test_a_server_that_stays_away_ends_the_run_and_the_next_one_continues(
    target: OpenSearchTarget, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.0)
    monkeypatch.setattr(wave, "OUTAGE_SECONDS", 0.0)
    with TroubledServer(target.uri, ["fine", "shut"]) as server:
        root = declare(docs, server.url, settings=", max_payload_bytes: 100000, max_requests: 1")
        with pytest.raises(Away, match="cannot be reached") as stopped:
            instep.load(root).run()
        assert stopped.value.exit_code == 75
        monkeypatch.undo()
        server.open()
        (resumed,) = instep.load(root).run()
    assert (resumed.counts.read, resumed.counts.failed, len(instep.load(root).jobs())) == (30, 0, 1)
    assert truth.difference(truth.expected(docs), content(target)) == ""


def test_changes_during_a_rebuild_are_served_before_and_after(
    target: OpenSearchTarget, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = declare(docs, target.uri)
    rebuilt_while_it_changes(root, docs, OpenSearchTarget, lambda: content(target), monkeypatch)
