"""An inventory of S3 lists what a listing lists, in each of its formats; what is wrong with one is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, quote_plus

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.arrow.percent import decoded, encoded
from instep.domain.identity import quoted
from instep.errors import UserError
from instep.sources.document_source import Listing
from instep.sources.files import FilesSource
from instep.sources.globs import Globs
from instep.sources.s3_inventory import Damaged, S3Inventory
from tests.servers.s3 import S3Server, running_s3
from tests.sources.inventories import CSV, CURRENT, ORC, PARQUET, VERSIONED, Inventories, Line, older

server = pytest.mark.server
DAY = datetime(2026, 11, 27, 1, 0, tzinfo=UTC)
KEYS = (
    *("docs/a.md", "docs/sub/b c.md", "docs/sub/ä+%25#.md", "docs/sub/日本.md", "docs/left/x.md", "docs/secret.md"),
    *("docs/a.txt", "docsy/a.md", "top.md", "docs/sub/deep/~!$&'().md", "docs/=;,@:.md"),
)
INCLUDE, EXCLUDE = ("**/*.md", "!draft*"), ("left/", "secret.md")
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@given(st.lists(TEXTS))
def test_texts_are_encoded_and_decoded_as_one_by_one(texts: list[str]) -> None:
    column = pa.array(["before", *texts], pa.string())[1:]
    assert encoded(column).to_pylist() == [quoted(each.encode()) for each in texts]
    for coded in (quote, quote_plus):
        assert decoded(pa.array(["%", *map(coded, texts)], pa.string())[1:]).to_pylist() == texts


@pytest.mark.parametrize("text", ["%", "a%4", "%zz", "%-1", "%FF"])
def test_what_is_not_encoded_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"percent sign|UTF8"):
        decoded(pa.array([text, "41"]))


PATTERNS = ["**/*.md", "*.md", "docs/", "!draft*", "/a*", "a?b", "s/**/x", "[a-c]*", "# no", "a\\ b", "!s/", "*"]
PATHS = st.lists(st.from_regex(r"([abs]|draft|docs|x|\.md|/| |\n){1,6}", fullmatch=True))


@example(patterns=["**/*.md"], paths=["/.md", "/a.md", "//a.md"], of_files=False)
@given(patterns=st.lists(st.sampled_from(PATTERNS), max_size=4), paths=PATHS, of_files=st.booleans())
def test_globs_match_many_paths_as_one_by_one(patterns: list[str], paths: list[str], of_files: bool) -> None:
    globs = Globs(patterns, of_files=of_files)
    assert globs.match_all(pa.array(paths, pa.string())).to_pylist() == [*map(globs.matches, paths)]


@pytest.fixture(scope="module")
def store() -> Iterator[S3Server]:
    made = running_s3()
    made.client().create_bucket(Bucket="manuals")
    for key in KEYS:
        made.client().put_object(Bucket="manuals", Key=key, Body=key.encode())
    yield made
    for key in KEYS:
        made.client().delete_object(Bucket="manuals", Key=key)
    made.client().delete_bucket(Bucket="manuals")


@pytest.fixture
def inventories(store: S3Server, request: pytest.FixtureRequest) -> Inventories:
    name = re.sub(r"\W+", "-", request.node.name)
    return Inventories(store, "manuals", f"inventories/{name}")


def source(inventories: Inventories, *roots: str, **how: Any) -> FilesSource:
    options = inventories.server.options
    made = S3Inventory(inventories.url, options)
    patterns = {"include": INCLUDE, "exclude": EXCLUDE, **how}
    return FilesSource(roots or ("s3://manuals/docs",), storage_options=options, inventory=made, **patterns)


def listed_before(files: FilesSource) -> Listing:
    assert files.inventory is not None
    return files.listed_before(files.inventory.newest())


@server
@pytest.mark.parametrize("form", [CSV, ORC, PARQUET])
@pytest.mark.parametrize("files", [1, 3])
def test_an_inventory_lists_what_a_listing_lists(inventories: Inventories, form: str, files: int) -> None:
    inventories.snapshot(DAY, form=form, files=files)
    found = listed_before(source(inventories))
    assert [*found.documents] == [*source(inventories).list().documents]
    assert len(found.documents) == 6
    assert found.as_of == DAY.timestamp() * 1000


@server
@pytest.mark.parametrize("roots", [["s3://manuals"], ["s3://manuals/docs/a.md"], ["s3://manuals/docs", "s3://manuals"]])
def test_each_kind_of_root_lists_the_same(inventories: Inventories, roots: list[str]) -> None:
    inventories.snapshot(DAY)
    files = source(inventories, *roots)
    assert [*listed_before(files).documents] == [*files.list().documents]
    everything = source(inventories, *roots, include=(), exclude=())
    assert [*listed_before(everything).documents] == [*everything.list().documents]


@server
def test_marks_of_folders_are_no_documents(inventories: Inventories) -> None:
    """As consoles make them: objects of no bytes whose keys end in a slash."""
    inventories.deliver([*inventories.lines("docs/"), Line("docs/folder/", 0, "d41d8cd9", DAY)], DAY)
    files = source(inventories, include=(), exclude=())
    assert [*listed_before(files).documents] == [*files.list().documents]


@server
@pytest.mark.parametrize(
    ("root", "keys"), [("s3://manuals/docs", ["docs//a.md"]), ("s3://manuals", ["docs//a.md", "/b.md"])]
)
def test_slashes_that_follow_each_other_are_of_the_key(inventories: Inventories, root: str, keys: list[str]) -> None:
    inventories.deliver([*inventories.lines("docs/"), *(Line(key, 1, "x", DAY) for key in keys)], DAY)
    found = {each.uri for each in listed_before(source(inventories, root)).documents}
    assert {f"s3://manuals/{each}" for each in [*keys, "docs/a.md"]} <= found


@server
@pytest.mark.parametrize("form", [CSV, ORC, PARQUET])
def test_older_versions_and_marks_of_deletion_are_no_objects(inventories: Inventories, form: str) -> None:
    lines = inventories.lines("docs/")
    gone = Line("docs/gone.md", None, None, DAY, deleted=True)
    before = [older(each, etag="older", size=1) for each in lines]
    inventories.deliver(
        [*before, *lines, gone, older(gone, deleted=False, etag="x", size=3)], DAY, form=form, fields=VERSIONED
    )
    files = source(inventories)
    assert [*listed_before(files).documents] == [*files.list().documents]


@server
def test_the_newest_complete_one_is_read(inventories: Inventories) -> None:
    inventories.deliver([], DAY - timedelta(days=1))
    inventories.snapshot(DAY)
    inventories.deliver([], DAY + timedelta(days=1), checksum=False)  # S3 is still at it.
    assert listed_before(source(inventories)).as_of == DAY.timestamp() * 1000


@server
def test_an_inventory_of_another_bucket_is_refused(inventories: Inventories) -> None:
    inventories.snapshot(DAY, source="others")
    with pytest.raises(UserError, match="is of bucket others"):
        listed_before(source(inventories))


@server
@pytest.mark.parametrize("form", [CSV, ORC, PARQUET])
def test_lacking_fields_are_named(inventories: Inventories, form: str) -> None:
    inventories.snapshot(DAY, form=form, fields=[each for each in CURRENT if each not in {"ETag", "Size"}])
    with pytest.raises(UserError, match=r"no column Size and no ETag\.\nAdd Size and ETag") as error:
        listed_before(source(inventories))
    assert inventories.url in str(error.value)


def _spoil(inventories: Inventories, end: str, data: bytes | None) -> None:
    files = inventories.server.files()
    (found,) = (each for each in files.find(f"{inventories.server.bucket}/{inventories.place}") if each.endswith(end))
    if data is None:
        files.rm_file(found)
    else:
        files.pipe(found, data)


@server
@pytest.mark.parametrize(
    ("end", "data", "why"),
    [
        ("manifest.json", b"{}", "manifest.json is not what its manifest.checksum says"),
        (".parquet", b"something else", "parquet is not what its manifest says"),
        (".parquet", None, "FileNotFoundError"),
        ("manifest.checksum", None, "no complete inventory in s3://"),
    ],
)
def test_what_is_damaged_is_told_from_what_is_whole(
    inventories: Inventories, end: str, data: bytes | None, why: str
) -> None:
    inventories.snapshot(DAY)
    _spoil(inventories, end, data)
    with pytest.raises(Damaged, match=why):
        listed_before(source(inventories))


@server
def test_an_inventory_of_another_prefix_is_of_no_use(inventories: Inventories) -> None:
    inventories.snapshot(DAY, below="docsy/")
    with pytest.raises(Damaged, match="it has nothing in s3://manuals/docs"):
        listed_before(source(inventories))


@server
def test_a_second_look_tells_of_documents_as_they_are_now(inventories: Inventories) -> None:
    files = source(inventories)
    everything = [*files.list().documents]
    uris = [each.uri for each in everything]
    looked = files.look_again([*uris, "s3://manuals/docs/gone.md", "s3://manuals/docs/left/x.md", "s3://others/x.md"])
    assert looked is not None
    assert [*looked.documents] == everything
    assert looked.missing == ["s3://manuals/docs/gone.md"]
