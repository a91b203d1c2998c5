"""Files in S3 that tasks list in portions: the same plan as that of a listing in one process."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.document_state.columns import ChangeColumns, listed_columns
from instep.document_state.corpus_parts import by_part
from instep.document_state.difference import ENTRY, RECORDED, Record, difference
from instep.document_state.pieces import PIECE, PieceFiles, Recorded, piece_schema, write_pieces
from instep.domain.identity import canonical_uri, document_id
from instep.domain.manifest import Difference
from instep.entities.documents.adapters import WayToPlan
from instep.entities.documents.corpora import TooMany, unless_too_many
from instep.errors import UserError
from instep.pipeline.documents.corpus import FOUND, KEPT, LISTED, SUMS, Comparison, PartRows, counts_of, problems_of
from instep.pipeline.documents.stored_changes import PartFile, Workspace
from instep.sources import s3_listing
from instep.sources.files import FilesPortion, FilesSource
from instep.sources.files_corpus import FilesCorpus
from tests.servers.s3 import S3Server, running_s3

pytestmark = pytest.mark.server

_FOLDERS = itertools.count()
NAMES = st.text(st.sampled_from([*"ab.-_~!$&'()*,;=:@+%# ?[]", "ä", "日", "\U0001f600"]), max_size=3).map("n{}".format)
TREES = st.lists(st.lists(st.one_of(st.sampled_from(["x", "y"]), NAMES), max_size=3), max_size=12)
SAFE = "/-._~!$&'()*+,;=:@"


@pytest.fixture(scope="module")
def store() -> S3Server:
    return running_s3()


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 3)


def fill(store: S3Server, keys: Iterable[str]) -> str:
    folder = f"{store.bucket}/corpus-{next(_FOLDERS)}"
    store.files().pipe({f"{folder}/{key}": key.encode() for key in keys})
    return folder


def source(store: S3Server, *folders: str, **options: Any) -> FilesSource:
    return FilesSource(tuple(f"s3://{each}" for each in folders), storage_options=store.options, **options)


def no_problem(why: str) -> None:
    raise AssertionError(why)


class Tasks:
    """Tasks that list portions and compare parts, as Spark runs them, one after the other."""

    def __init__(
        self, files: FilesSource, folder: Path, known: pa.Table, failed: Mapping[str, str], parts: int
    ) -> None:
        nothing = PieceFiles(folder, ())
        recorded = Recorded(write_pieces(folder, known.to_batches()), nothing, nothing)
        self.corpus, self.folder = FilesCorpus(files), folder
        self.comparison = Comparison(self.corpus, recorded, by_part(failed, parts), parts, 3, False, folder)

    def listed(self, portions: Sequence[FilesPortion]) -> pa.Table:
        batches: list[pa.RecordBatch] = []
        for each in portions:
            problems: list[str] = []
            corpus = self.corpus
            batches += self.comparison.listed(corpus.listed([each], problems.append))
            batches += [self.comparison.unlisted(problems)] if problems else []
        every = {"part": pa.array(range(self.comparison.parts), pa.int32())}
        whole = {
            name: every.get(name, pa.nulls(self.comparison.parts, LISTED.field(name).type)) for name in LISTED.names
        }
        return pa.concat_tables([pa.Table.from_batches(batches, LISTED), pa.table(whole, LISTED)])

    def compared(self, portions: Sequence[FilesPortion]) -> tuple[pa.Table, list[Any]]:
        rows = self.listed(portions)
        shares = [
            rows.filter(pc.equal(rows["part"], pa.scalar(part, pa.int32()))) for part in range(self.comparison.parts)
        ]
        comparison = pickle.loads(pickle.dumps(self.comparison))
        found = pa.Table.from_batches(
            [each for share in shares for each in comparison.compared(share.to_batches())], FOUND
        )
        files = [
            PartFile(row["file"], [int(each) for each in row["buckets"].split()])
            for row in found.to_pylist()
            if row["file"]
        ]
        return found, sorted(change for each in files for change in ChangeColumns(each.read(self.folder)))


def entries(recorded: Mapping[str, tuple[int, str]]) -> pa.Table:
    rows = [
        (document_id(canonical_uri(uri)), uri, size, version, 1, f"hash {version}")
        for uri, (size, version) in recorded.items()
    ]
    made = pa.Table.from_pylist([dict(zip(PIECE, row, strict=True)) for row in rows], piece_schema())
    return made.sort_by("document_id")


def in_this_process(files: FilesSource, known: pa.Table, failed: Mapping[str, str], *, unseen: str = "") -> Difference:
    record = Record(
        known.select(RECORDED), lambda uris: known.filter(pc.is_in(known["uri"], value_set=uris)).select(ENTRY)
    )
    seen = [each for each in files.list().documents if not unseen or unseen not in each.uri]
    return difference(listed_columns(seen), record, failed, complete=True, buckets=3)


@given(
    tree=TREES,
    enough=st.sampled_from([1, 3, 100]),
    parts=st.sampled_from([1, 4]),
    patterns=st.sampled_from([((), ()), (("*.md",), ()), (("*.md", "!1.md"), ("x/",))]),
    data=st.data(),
)
@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_portions_make_the_plan_of_the_whole(
    store: S3Server, tree: list[list[str]], enough: int, parts: int, patterns: Any, data: st.DataObject
) -> None:
    keys = ["/".join([*path, f"{at}.{'md' if at % 3 else 'txt'}"]) for at, path in enumerate(tree)]
    folder = fill(store, [*keys, "always.md"])
    roots = (folder, f"{folder}/x") if any(each.startswith("x/") for each in keys) and enough == 3 else (folder,)
    include, exclude = patterns
    files = source(store, *roots, include=include, exclude=exclude)
    here = {each.uri: (each.size, each.version) for each in files.list().documents}
    known = {
        uri: data.draw(st.sampled_from([facts, (1, "older"), (facts[0] + 1, facts[1])]))
        for uri, facts in here.items()
        if data.draw(st.booleans())
    } | dict.fromkeys([f"s3://{folder}/gone-{at}.md" for at in range(data.draw(st.integers(0, 3)))], (1, "1"))
    failed = {uri: version for uri, (_, version) in here.items() if data.draw(st.integers(0, 3)) == 0}
    with TemporaryDirectory() as name:
        tasks = Tasks(files, Path(name), entries(known), failed, parts)
        portions = files.portions(enough)
        if enough > 1 and any("/" in each for each in keys):
            assert len(portions) > 1
        found, changes = tasks.compared(portions)
    whole = in_this_process(files, entries(known), failed)
    assert changes == sorted(whole.changes)
    assert {each: counts_of(found)[each] for each in SUMS} == {each: getattr(whole, each) for each in SUMS}
    assert counts_of(found)["listed"] == len(here)
    assert problems_of(found) == []


@pytest.fixture
def shelf(store: S3Server) -> str:
    return fill(store, ["a.md", "b/b.md", "b/deep/c.md", "d/d.md", *(f"e/{at}.md" for at in range(5))])


def known_as(files: FilesSource, *more: str) -> pa.Table:
    here = {each.uri: (each.size, each.version) for each in files.list().documents}
    return entries({**here, **dict.fromkeys(more, (1, "1"))})


def test_a_folder_is_parted_level_by_level(store: S3Server, shelf: str) -> None:
    files = source(store, shelf)
    prefix = shelf.partition("/")[2]

    def told(enough: int) -> list[str]:
        portions = [each.portion for each in files.portions(enough) if each.portion is not None]
        return [f"{each.prefix.removeprefix(prefix)}{'*' if each.shallow else '**'}" for each in portions]

    assert told(1) == ["/**"]
    assert told(4) == ["/*", "/b/**", "/d/**", "/e/**"]
    assert told(100) == ["/*", "/b/*", "/d/*", "/e/*", "/b/deep/*"]


def test_a_folder_in_which_much_lies_is_one_portion(
    store: S3Server, shelf: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_listing, "_LOOKED_THROUGH", 4)
    portions = [each.portion for each in source(store, shelf).portions(100)]
    prefix = shelf.partition("/")[2]
    assert s3_listing.Portion(f"{prefix}/e/", shallow=False) in portions


def test_a_root_that_is_an_object_or_nothing(store: S3Server, shelf: str) -> None:
    files = source(store, f"{shelf}/a.md")
    (portion,) = files.portions(100)
    assert [*files.portion(portion, no_problem)] == [*files.list().documents]
    with pytest.raises(UserError, match="there is nothing at"):
        source(store, f"{shelf}/nowhere").portions(100)


def broken(files: FilesSource, monkeypatch: pytest.MonkeyPatch, prefix: str, error: Exception) -> None:
    (root,) = files._urls()
    fs, _ = root._open()
    call = fs.call_s3

    def answer(method: str, **asked: Any) -> Any:
        if asked.get("Prefix", "").startswith(prefix):
            raise error
        return call(method, **asked)

    monkeypatch.setattr(fs, "call_s3", answer)


@pytest.mark.parametrize("enough", [1, 4, 100])
@pytest.mark.parametrize("parts", [1, 8])
def test_a_prefix_that_cannot_be_listed_deletes_nothing(
    store: S3Server, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enough: int, parts: int
) -> None:
    files = source(store, shelf)
    prefix = f"{shelf.partition('/')[2]}/b/"
    tasks = Tasks(files, tmp_path, known_as(files, f"s3://{shelf}/gone.md"), {}, parts)
    portions = files.portions(enough)
    broken(files, monkeypatch, prefix if enough > 1 else prefix[: -len("b/")], PermissionError(13, "denied"))
    found, changes = tasks.compared(portions)
    assert changes == []
    assert counts_of(found)["incomplete"] == parts
    where = [f"s3://{shelf}/b: denied"] if enough > 1 else [f"s3://{shelf}: denied"]
    assert problems_of(found)[:1] == where


@pytest.mark.parametrize("parts", [1, 8])
def test_a_build_would_leave_out_what_cannot_be_listed(
    store: S3Server, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: int
) -> None:
    files = source(store, shelf)
    known = known_as(files, f"s3://{shelf}/gone.md")
    tasks = Tasks(files, tmp_path, known, {}, parts)
    tasks.comparison = replace(tasks.comparison, of_build=True)
    portions = files.portions(100)
    broken(files, monkeypatch, f"{shelf.partition('/')[2]}/b/", PermissionError(13, "denied"))
    found, changes = tasks.compared(portions)
    whole = in_this_process(files, known, {}, unseen="/b/")
    assert whole.lost == 3
    assert {each: counts_of(found)[each] for each in SUMS} == {each: getattr(whole, each) for each in SUMS}
    assert changes == sorted(whole.changes)
    assert problems_of(found) == [f"s3://{shelf}/b: denied", f"s3://{shelf}/b/deep: denied"]


def test_a_folder_that_cannot_be_looked_at_is_left_to_a_task_that_says_so(
    store: S3Server, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = source(store, shelf)
    tasks = Tasks(files, tmp_path, known_as(files), {}, 2)
    broken(files, monkeypatch, f"{shelf.partition('/')[2]}/b/", PermissionError(13, "denied"))
    found, changes = tasks.compared(files.portions(100))
    assert changes == []
    assert problems_of(found) == [f"s3://{shelf}/b: denied"]


def test_what_a_task_does_not_see_is_not_gone(store: S3Server, shelf: str, tmp_path: Path) -> None:
    """It may be on a host that asks another store."""
    files = source(store, shelf)
    tasks = Tasks(files, tmp_path, known_as(files), {}, 2)
    portions = files.portions(100)
    for each in ("b.md", "deep/c.md"):
        store.files().rm_file(f"{shelf}/b/{each}")
    found, changes = tasks.compared(portions)
    assert changes == []
    assert [each.rpartition(": ")[0] for each in problems_of(found)] == [f"s3://{shelf}/b", f"s3://{shelf}/b/deep"]
    found, changes = tasks.compared(files.portions(100))
    assert [str(each.action) for each in changes] == ["delete", "delete"]


def test_many_problems_are_told_in_short(store: S3Server, shelf: str, tmp_path: Path) -> None:
    files = source(store, shelf)
    told = Tasks(files, tmp_path, known_as(files), {}, 4).comparison.unlisted([f"{at}" for at in range(30)])
    assert told.num_rows == 4
    assert told["problems"].to_pylist() == [[*map(str, range(20)), "and 10 more problems of this kind"], [], [], []]


def test_a_comparison_part_by_part_knows_what_could_not_be_listed(
    store: S3Server, shelf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = source(store, shelf)
    tasks = Tasks(files, tmp_path, known_as(files), {}, 4)
    portions = files.portions(4)
    broken(files, monkeypatch, f"{shelf.partition('/')[2]}/b/", PermissionError(13, "denied"))
    rows = tasks.listed(portions)
    kept = pa.Table.from_batches([*tasks.comparison.kept(rows.to_batches())], KEPT)
    files_of = {row["part"]: row["file"] for row in kept.to_pylist() if row["file"]}
    work = Workspace(tmp_path / "work")
    work.folder = tmp_path
    parts = PartRows(work, files_of, problems_of(kept))
    assert parts.problems == [f"s3://{shelf}/b: denied"]
    assert sum(parts.part(number).num_rows for number in range(4)) == 7


@dataclass
class Setup:
    """As much of a setup as the choice asks for. `asked` are the numbers of documents that were told."""

    source: FilesSource
    least: int
    asked: list[int] = field(default_factory=list)

    def way_to_plan(self, known: int) -> WayToPlan:
        self.asked.append(known)
        tasks: Any = "tasks"
        return WayToPlan(tasks) if known >= self.least else WayToPlan()


def test_a_first_listing_is_left_to_tasks_once_it_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.pipeline.engine.choice.SPARK_PLANS", 500)
    told: list[int] = []
    setup: Any = Setup(FilesSource(("s3://bucket",)), least=2_000)
    progress = unless_too_many(setup, told.append)
    assert progress is not None
    for number in range(100, 2_000, 100):
        progress(number)
    assert setup.asked == [500, 1_000]
    with pytest.raises(TooMany) as found:
        progress(2_000)
    assert found.value.way.tasks is not None
    assert told[-1] == 2_000
    local: Any = Setup(FilesSource(("docs",)), least=0)
    assert unless_too_many(local, None) is None


def test_an_inventory_and_other_stores_are_listed_in_this_process(store: S3Server, tmp_path: Path) -> None:
    assert source(store, "bucket/docs").portioned
    assert not source(store, "bucket/docs", inventory=object()).portioned
    assert not FilesSource(("s3://bucket", str(tmp_path))).portioned
    assert not FilesSource(("zip://docs::s3://bucket/a.zip",)).portioned


def test_uris_of_portions_are_those_of_the_listing(store: S3Server) -> None:
    keys = ["ä b/%25?.md", "#/x+.md", "&/=;.md"]
    folder = fill(store, keys)
    files = source(store, folder)
    found = [each.uri for portion in files.portions(100) for each in files.portion(portion, no_problem)]
    assert sorted(found) == sorted(f"s3://{folder}/{quote(key, safe=SAFE)}" for key in keys)
