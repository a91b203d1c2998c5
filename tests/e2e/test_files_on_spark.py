"""Files in S3 that tasks of Spark list and compare: what a user does with them, and what can be wrong with a store."""

from __future__ import annotations

import gc
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.entities.documents.listed_source import ListedSource
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.jobs.entity_result import EntityResult
from instep.project import Project
from instep.sources.document_source import Listing
from instep.sources.files import FilesSource
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Server, running_s3
from tests.sources.tables.sessions import session

from . import truth

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.proof]

_FOLDERS = itertools.count()


@dataclass
class Shelf:
    """A project whose documents are in S3, and the same in memory."""

    root: Path
    server: S3Server = field(default_factory=running_s3)
    documents: dict[str, str] = field(default_factory=dict)
    port: int = 0

    def __post_init__(self) -> None:
        self.name = f"{self.server.bucket}/shelf-{next(_FOLDERS)}"
        self.port = self.port or self.server.port
        self.files = self.server.files()

    def put(self, **texts: str) -> None:
        """Documents by their keys, with `__` for a slash."""
        for key, text in ((key.replace("__", "/"), text) for key, text in texts.items()):
            self.files.pipe(f"{self.name}/{key}.md", text.encode())
            self.documents[key] = text

    def remove(self, *keys: str) -> None:
        for key in keys:
            self.files.rm_file(f"{self.name}/{key}.md")
            del self.documents[key]

    def open(self, *, spark: bool = True) -> instep.Instep:
        options = {**self.server.options, "endpoint_url": f"http://127.0.0.1:{self.port}"}
        source = {"type": "files", "path": f"s3://{self.name}", "include": ["*.md"], "storage_options": options}
        document = {"source": source, "target": "index", "embed": {"type": "hashing", "dimensions": 32}}
        targets = {"index": {"type": "lance", "uri": str(self.root / "index")}}
        made = {"name": "p", "root": self.root, "targets": targets, "entities": {"Document": document}}
        return instep.Instep(Project.model_validate(made), spark=session() if spark else None)

    def run(self, **options: Any) -> EntityResult:
        (result,) = self.open().run(**options)
        return result

    def wrong(self) -> str:
        """What differs between the index and the documents, by their texts."""
        have = Counter(("", text) for _, text in truth.stored(self.root / "index").elements())
        return truth.difference(Counter(("", text) for text in self.documents.values()), have)


#: In a request for the listing of the folder `d1`.
_D1 = "%2Fd1%2F"


@pytest.fixture(autouse=True)
def _on_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """All is planned on Spark, its changes are cut there, and what is recorded is kept for that."""
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1)
    monkeypatch.setattr("instep.pipeline.documents.stored_changes.FEW", 0)
    monkeypatch.setattr("instep.pipeline.engine.corpus._UNKNOWN", 60)
    monkeypatch.setattr("instep.pipeline.engine.corpus._TASKS", 4)
    monkeypatch.setattr("instep.document_state.corpus_parts._DOCUMENTS", 16)
    monkeypatch.setattr("instep.ledger.documents._BASE_ROWS", 1)
    monkeypatch.setattr("instep.ledger.plans._FILE_ROWS", 1)


def not_here(source: FilesSource, progress: object = None) -> Listing:
    raise AssertionError("listed in this process")


def filled(shelf: Shelf) -> Shelf:
    deep = {f"d{at % 3}__e{at % 2}__f__{at}": f"deep {at}" for at in range(12)}
    shelf.put(top="top", other="other", **{f"d{at % 3}__{at}": f"text {at}" for at in range(12)}, **deep)
    return shelf


def test_files_are_followed_with_plans_that_spark_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = filled(Shelf(tmp_path))
    (first,) = shelf.open().plan()
    assert (first.compared or "").startswith("compared on Spark: about ")
    assert shelf.run().counts.written == len(shelf.documents)
    assert shelf.wrong() == ""
    # From now on it is known how many there are.
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(FilesSource, "list", not_here)
        assert shelf.run().plan.kind is Kind.NOTHING
        shelf.put(d1__1="said again", d2__e0__new="new")
        shelf.remove("top", "d0/e0/f/0")
        (there,) = shelf.open().plan(explain=True)
        (compared_there,) = shelf.open().diff()
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1_000)
    (here,) = shelf.open().plan(explain=True)
    (compared_here,) = shelf.open().diff()
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 1)
    assert here.compared is None
    assert (there.documents, there.slices, there.work) == (here.documents, here.slices, here.work)
    assert sorted(map(str, there.changes or ())) == sorted(map(str, here.changes or ()))
    assert (compared_there.pending, compared_there.differs) == (compared_here.pending, compared_here.differs)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(FilesSource, "list", not_here)
        changed = shelf.run()
    assert (changed.counts.written, changed.counts.deleted) == (2, 2)
    assert shelf.wrong() == ""
    shelf.run(full_refresh=True)
    assert shelf.wrong() == ""
    shelf.remove(*[each for each in shelf.documents if each.startswith("d")])
    shelf.run()
    assert shelf.wrong() == ""
    del first, there, here, changed  # They have what was planned.
    gc.collect()
    assert "planning" not in {each.name for each in (tmp_path / ".instep").iterdir()}


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Between S3 and its clients, which ask once."""
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    proxy = Proxy(running_s3().port)
    yield proxy
    proxy.close()


@pytest.fixture
def shelf(proxy: Proxy, tmp_path: Path) -> Shelf:
    """Its documents are indexed. It is asked by way of the proxy, which can break the listing of one of its folders."""
    shelf = filled(Shelf(tmp_path, port=proxy.port))
    shelf.run()
    return shelf


def test_a_folder_that_tasks_cannot_list_deletes_nothing(proxy: Proxy, shelf: Shelf) -> None:
    shelf.remove("top", "d1/1")
    shelf.put(d2__2="said again")
    proxy.breaks = _D1
    result = shelf.run()
    assert result.counts.deleted == 0
    assert result.counts.written == 1
    assert [each.partition(": ")[0] for each in result.plan.found.problems] == [f"s3://{shelf.name}/d1"]
    proxy.breaks = None
    assert shelf.run().counts.deleted == 2
    assert shelf.wrong() == ""


def test_a_build_of_a_listing_that_was_not_whole_is_refused_though_the_next_one_is(
    proxy: Proxy, shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build lists, and then what it would leave out is told by another listing."""
    left_out = ListedSource.left_out

    def whole(*asked: Any, **options: Any) -> Any:
        proxy.breaks = None
        found = left_out(*asked, **options)
        proxy.breaks = _D1
        return found

    monkeypatch.setattr(ListedSource, "left_out", whole)
    proxy.breaks = _D1
    with pytest.raises(UserError, match="a build would leave out what could not be listed"):
        shelf.run(full_refresh=True)
    assert shelf.wrong() == ""


def test_a_build_that_may_leave_out_what_could_not_be_listed_counts_it_as_lost(proxy: Proxy, shelf: Shelf) -> None:
    """As many as where this process lists."""
    proxy.breaks = _D1
    built = shelf.run(full_refresh=True, allow_deletes=True)
    unseen = [each for each in shelf.documents if each.startswith("d1/")]
    assert built.plan.found.compared is not None
    assert built.plan.found.lost.units == len(unseen) == 8
