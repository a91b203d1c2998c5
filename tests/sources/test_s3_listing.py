"""S3 is listed in pages: what is found is what s3fs finds, and no more than a page of it is held."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from instep.sources import s3_listing
from instep.sources.document_source import Unreadable
from instep.sources.files import FilesPortion, FilesSource
from instep.sources.s3_listing import pages
from instep.sources.url_files import file_version, files_below
from tests.servers.proxy import Proxy
from tests.servers.s3 import S3Server, running_s3

pytestmark = pytest.mark.server

_FOLDERS = itertools.count()
#: Such as stand in keys, and mean something in URLs, in globs or in XML.
NAMES = st.text(st.sampled_from([*"ab.-_~!$&'()*,;=:@+%# ?<>[]", "ä", "日", "\U0001f600"]), max_size=4)
TREES = st.lists(st.lists(NAMES, max_size=2), max_size=12)


@pytest.fixture(scope="module")
def store() -> S3Server:
    return running_s3()


def fill(store: S3Server, keys: Iterable[str]) -> str:
    """A folder with such objects."""
    folder = f"{store.bucket}/listed-{next(_FOLDERS)}"
    store.files().pipe({f"{folder}/{key}": key.encode() for key in keys})
    return folder


def source(store: S3Server, folder: str, **options: Any) -> FilesSource:
    return FilesSource((f"s3://{folder}",), storage_options={**store.options, "skip_instance_cache": True, **options})


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3_listing, "PAGE", 3)


@given(tree=TREES)
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.usefixtures("small_pages")
def test_pages_have_what_s3fs_finds(store: S3Server, tree: list[list[str]]) -> None:
    keys = {"/".join([*(f"n{each}" for each in path), f"{at}.md"]) for at, path in enumerate(tree)}
    folder = fill(store, keys)
    fs = store.files()
    found = dict(files_below(fs, folder, no_problem))
    expected = fs.find(folder, detail=True)
    assert found == expected
    assert {each.removeprefix(f"{folder}/") for each in found} == keys
    listed = FilesSource((f"s3://{folder}",), storage_options=store.options).list().documents if keys else ()
    assert [each.version for each in listed] == [
        file_version(fs, path, info) for path, info in sorted(expected.items(), key=lambda each: url_of(each[0]))
    ]


def url_of(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/-._~!$&'()*+,;=:@")


def no_problem(path: str, why: str) -> None:
    raise AssertionError(f"{path}: {why}")


class Endless:
    """A store of very many objects, as the client of s3fs answers."""

    version_aware = False

    def __init__(self, number: int) -> None:
        self._number = number

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        start = int(asked.get("ContinuationToken", 0))
        stop = start + asked["MaxKeys"]
        found = [{"Key": f"docs/{at}.md", "Size": at, "ETag": f'"{at:032}"'} for at in range(start, stop)]
        return {"Contents": found, "IsTruncated": stop < self._number, "NextContinuationToken": str(stop)}

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None


def test_no_more_than_a_page_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)

    def peak(number: int) -> int:
        tracemalloc.start()
        assert sum(1 for _ in files_below(Endless(number), "bucket/docs", no_problem)) == number
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(50_000) < 2 * peak(2_000)


@pytest.mark.usefixtures("small_pages")
def test_a_listing_that_breaks_off_is_incomplete_and_keeps_what_it_had(
    store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fill(store, (f"{at}.md" for at in range(10)))
    files = source(store, folder)
    assert files.list().complete
    (root,) = files._urls()
    fs, _ = root._open()
    asked, call = itertools.count(), fs.call_s3

    def answer(method: str, **options: Any) -> Any:
        if method == "list_objects_v2" and next(asked) == 2:
            raise PermissionError(13, "denied")
        return call(method, **options)

    monkeypatch.setattr(fs, "call_s3", answer)
    listing = files.list()
    assert len(listing.documents) == 6
    assert listing.problems == [f"s3://{folder}: denied"]


def test_a_store_that_goes_away_while_it_is_listed_makes_it_incomplete(
    store: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    folder = fill(store, ["a.md"])
    proxy = Proxy(store.port)
    files = source(store, folder, endpoint_url=f"http://127.0.0.1:{proxy.port}")
    assert files.list().complete
    proxy.away = True
    assert not files.list().complete
    proxy.close()


class Versioned:
    """A bucket with versions, as a client of it answers."""

    version_aware = True

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        assert method == "list_object_versions"
        self.asked.append(asked)
        if "KeyMarker" not in asked:
            one = {"Key": "a.md", "Size": 1, "IsLatest": False, "VersionId": "1"}
            more = {"IsTruncated": True, "NextKeyMarker": "a.md", "NextVersionIdMarker": "1"}
            return {"Versions": [one], "DeleteMarkers": [{"Key": "gone.md", "IsLatest": True}], **more}
        return {"Versions": [{"Key": "a.md", "Size": 2, "IsLatest": True, "VersionId": "2"}]}


def test_of_versions_the_latest_is_listed() -> None:
    fs = Versioned()
    found = [each for page in pages(fs, "bucket", "") for each in page.objects]
    assert [(each["name"], each["size"]) for each in found] == [("bucket/a.md", 2)]
    assert [each.get("VersionIdMarker") for each in fs.asked] == [None, "1"]


class Marked:
    """A store in which consoles made folders, as the client of s3fs answers."""

    version_aware = False

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        return {"Contents": [{"Key": f"docs/{each}", "Size": 0, "ETag": '"x"'} for each in ("", "folder/", "a.md")]}

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None


def test_marks_of_folders_are_no_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    assert [path for path, _ in files_below(Marked(), "bucket/docs", no_problem)] == ["bucket/docs/a.md"]


class Slashes:
    """A store that takes each key for what it is, as the client of s3fs answers."""

    version_aware = False

    def __init__(self, **objects: str) -> None:
        self.objects = {f"docs{key}": text for key, text in objects.items()}

    def invalidate_cache(self) -> None:
        """Do nothing: it has none."""

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        return {"Contents": [self._object(key) for key in sorted(self.objects) if key.startswith(asked["Prefix"])]}

    def info(self, path: str) -> dict[str, Any]:
        key = path.removeprefix("bucket/")
        if key in self.objects:
            return {**self._object(key), "name": path, "type": "file", "size": len(self.objects[key])}
        return {"name": path, "type": "directory", "size": 0}

    def cat_file(self, path: str) -> bytes:
        return self.objects[path.removeprefix("bucket/")].encode()

    def _object(self, key: str) -> dict[str, Any]:
        return {"Key": key, "Size": len(self.objects[key]), "ETag": f'"{self.objects[key]}"'}


def test_slashes_that_follow_each_other_are_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    texts = {"/a.md": "one", "//a.md": "two", "//b.md": "three", "//c//d.md": "four", "//e.txt": "left out"}
    files = FilesSource(("s3://bucket/docs",), include=("*.md",))
    (root,) = files._urls()
    root._opened = Slashes(**texts), "bucket/docs"
    listed = files.list().documents
    assert [each.uri.removeprefix("s3://bucket/docs") for each in listed] == ["//a.md", "//b.md", "//c//d.md", "/a.md"]
    assert [files.read(each.uri, max_bytes=10).data.decode() for each in listed] == [each.version for each in listed]
    looked = files.look([each.uri for each in listed])
    assert looked is not None
    assert [*looked.documents] == [*listed]


def test_a_root_whose_key_begins_with_a_slash_is_not_taken_for_the_one_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    store = Slashes()
    store.objects = {"/docs/a.md": "one", "docs/b.md": "another root"}
    files = FilesSource(("s3://bucket//docs",))
    (root,) = files._urls()
    root._opened = store, "bucket//docs"
    (listed,) = files.list().documents
    assert listed.uri == "s3://bucket//docs/a.md"
    assert files.read(listed.uri, max_bytes=10).data == b"one"
    told: list[str] = []
    assert [each.uri for part in files.portions(100) for each in files.portion(part, told.append)] == [listed.uri]
    assert told == []


@pytest.mark.parametrize("refused", [None, PermissionError(13, "denied"), OSError(5, "broken")])
def test_an_object_does_not_hide_the_folder_with_its_name(
    refused: OSError | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    store = Slashes(**{"": "an object", "/a.md": "one", "/x.txt": "left out"})
    files = FilesSource(("s3://bucket/docs",), include=("*.md",))
    (root,) = files._urls()
    root._opened = store, "bucket/docs"
    whole = files.list()
    assert [each.uri for each in whole.documents] == ["s3://bucket/docs", "s3://bucket/docs/a.md"]
    (portion,) = files.portions(100)
    told: list[str] = []
    assert [*files.portion(portion, told.append)] == [*whole.documents]
    assert [*whole.problems, *told] == []
    if refused is None:
        return

    def answer(method: str, **asked: Any) -> Any:
        raise refused

    monkeypatch.setattr(store, "call_s3", answer)
    alone = files.list()
    assert [each.uri for each in alone.documents] == ["s3://bucket/docs"]
    assert alone.problems == ([] if isinstance(refused, PermissionError) else ["s3://bucket/docs: broken"])
    assert alone.seen_from(["s3://bucket/docs"]).problems == alone.problems, "some may read a file, and list nothing"


def test_a_folder_beside_an_object_that_may_not_be_listed_any_more_keeps_its_documents(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    store = Slashes(**{"": "an object", "/a.md": "one", "/b.md": "two"})
    files = FilesSource(("s3://bucket/docs",))
    (root,) = files._urls()
    root._opened = store, "bucket/docs"
    indexed = [each.uri for each in files.list().documents]
    assert len(indexed) == 3

    def refuse(method: str, **asked: Any) -> Any:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(store, "call_s3", refuse)
    assert files.list().seen_from(indexed).problems == [
        "s3://bucket/docs/: denied, and 2 documents were found there; grant the right to list it"
    ]
    (portion,) = files.portions(100)
    told: list[str] = []
    assert [each.uri for each in files.portion(portion, told.append)] == indexed[:1]
    assert told == ["s3://bucket/docs/: denied"]

    def refuse_more(method: str, **asked: Any) -> Any:
        if "ContinuationToken" in asked:
            raise PermissionError(13, "denied")
        return {"Contents": [store._object("docs/a.md")], "IsTruncated": True, "NextContinuationToken": "more"}

    monkeypatch.setattr(store, "call_s3", refuse_more)
    assert files.list().problems == ["s3://bucket/docs: denied"], "it may be listed: more is missing than is known"


class Removed:
    """A bucket with versions: all objects of one folder were removed, and of another none ever was there."""

    version_aware = True

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        if asked["Prefix"] != "docs/old/":
            return {}
        older = {"Key": "docs/old/a.md", "Size": 1, "IsLatest": False, "VersionId": "1"}
        return {"Versions": [older], "DeleteMarkers": [{"Key": "docs/old/a.md", "IsLatest": True}]}

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None


@pytest.mark.parametrize(("folder", "problems"), [("old", 0), ("elsewhere", 1)])
def test_a_portion_of_removed_objects_alone_is_listed(folder: str, problems: int) -> None:
    files = FilesSource(("s3://bucket/docs",))
    (root,) = files._urls()
    root._opened = Removed(), "bucket/docs"
    told: list[str] = []
    portion = FilesPortion("s3://bucket/docs", s3_listing.Portion(f"docs/{folder}/"))
    assert [*files.portion(portion, told.append)] == []
    assert len(told) == problems


class Stuck:
    """A store that has more, and does not say where."""

    version_aware = False

    def __init__(self, **place: str) -> None:
        self._place = place

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        return {"Contents": [{"Key": "docs/a.md", "Size": 1, "ETag": '"x"'}], "IsTruncated": True, **self._place}

    def split_path(self, path: str) -> tuple[str, str, None]:
        bucket, _, key = path.partition("/")
        return bucket, key, None


@pytest.mark.parametrize("place", [{}, {"NextContinuationToken": "the same"}])
def test_a_store_that_gives_one_page_again_and_again_is_not_listed(
    place: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    told: list[str] = []
    found = files_below(Stuck(**place), "bucket/docs", lambda path, why: told.append(why))
    assert {path for path, _ in itertools.islice(found, 10)} == {"bucket/docs/a.md"}
    assert told == ["it does not tell where its next page begins"]


class Folders:
    """A bucket with versions, one folder on each page, as a client of it answers."""

    version_aware = True

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        if asked.get("VersionIdMarker") == "":
            raise ValueError("A version-id marker cannot be empty.")
        if "KeyMarker" in asked:
            return {"CommonPrefixes": [{"Prefix": "docs/b/"}]}
        return {"CommonPrefixes": [{"Prefix": "docs/a/"}], "IsTruncated": True, "NextKeyMarker": "docs/a/"}


def test_a_page_of_versions_may_end_with_a_folder() -> None:
    found = [each for page in pages(Folders(), "bucket", "docs/", shallow=True) for each in page.prefixes]
    assert found == ["docs/a/", "docs/b/"]


def test_a_shallow_listing_tells_folders_apart(store: S3Server, small_pages: None) -> None:
    folder = fill(store, ["a.md", "b/c.md", "b/d/e.md", "f/g.md", *(f"{at}.md" for at in range(5))])
    fs = store.files()
    bucket, prefix = s3_listing.prefix_of(fs, folder)
    found = [*pages(fs, bucket, prefix, shallow=True)]
    assert [each for page in found for each in page.prefixes] == [f"{prefix}b/", f"{prefix}f/"]
    assert len([each for page in found for each in page.objects]) == 6
    assert len(found) > 1


def test_an_object_whose_key_names_a_version_is_not_taken_for_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its path s3fs would read the version of `a.md` that is called so."""
    monkeypatch.setattr("instep.sources.url_files.is_s3", lambda fs: True)
    files = FilesSource(("s3://bucket/docs",))
    (root,) = files._urls()
    root._opened = Slashes(**{"/a.md?versionId=1": "odd"}), "bucket/docs"
    (found,) = files.list().documents
    assert found.uri == "s3://bucket/docs/a.md%3FversionId=1"
    with pytest.raises(Unreadable, match="versionId"):
        files.read(found.uri, max_bytes=9)
