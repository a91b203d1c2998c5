"""One place spelled in two ways is one place: it is declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from instep.project import Project, Target
from instep.project.targets import DeclaredTarget, location_of, location_text

from .conftest import Load, Reject

TARGETS: TypeAdapter[Target] = TypeAdapter(DeclaredTarget)


def target(kind: str, uri: str, **more: Any) -> Target:
    if kind == "clickhouse" and "://" in uri:
        more = {"staging": "s3://staging", **more}
    return TARGETS.validate_python({"type": kind, "uri": uri, **more})


def declared(first: str, second: str) -> str:
    return f"""\
name: p
targets:
  one: {first}
  two: {second}
  three: {{type: opensearch, uri: http://h}}
entities:
  Document: {{source: {{type: files, path: docs}}, target: three}}
"""


SAME_SERVERS = [
    (
        "clickhouse",
        ["http://h", "http://H:8123/instep", "http://ann:secret@h./instep/", "https://h", "http://h/inst%65p"],
    ),
    ("clickhouse", ["http://localhost:9000/db", "http://127.0.0.1:9000/db", "http://[::1]:9000/db/"]),
    ("qdrant", ["http://h", "http://h:6333/", "https://h:6333", "http://H.:6333"]),
    ("qdrant", ["http://h/prefix", "http://h:6333/prefix/", "http://h//prefix"]),
    ("milvus", ["http://h", "http://h:19530", "https://H:19530/", "http://h/default", "http://h:19530/default/"]),
    ("milvus", ["https://h", "https://h:443/default"]),
    ("opensearch", ["http://h", "http://h:9200/", "https://h:9200", "http://H:9200"]),
    ("opensearch", ["http://127.1", "http://0.0.0.0:9200", "http://[::ffff:127.0.0.1]", "http://a.localhost"]),
    ("opensearch", ["http://[2001:db8::1]", "http://[2001:DB8:0:0::0001]:9200"]),
    (
        "postgres",
        [
            "postgresql://h/db",
            "postgres://h:5432/db",
            "postgresql+psycopg://ann:secret@H/db",
            "postgresql://h/d%62?sslmode=require&connect_timeout=3",
            "postgresql://h/db?connect_timeout=3&sslmode=require",
            "postgresql://other/x?dbname=db&host=h&port=5432",
        ],
    ),
    (
        "postgres",
        [
            "postgresql:///db",
            "postgresql://localhost/db",
            "postgresql://127.0.0.1:5432/db",
            "postgresql:///db?host=/var/run/postgresql",
            "postgresql://[::1]/db",
        ],
    ),
    (
        "postgres",
        [
            "postgresql:///db?host=a,b",
            "postgresql:///db?host=b,a&port=5432",
            "postgresql:///db?host=a,b&port=5432,5432",
        ],
    ),
    ("lance", ["s3://bucket/a", "s3://bucket/a/", "S3://Bucket//a", "s3://bucket/./a"]),
    ("lance", ["s3+ddb://bucket/a?x=1&y=2", "s3+ddb://bucket/a?y=2&x=1"]),
]


@pytest.mark.parametrize(("kind", "uris"), SAME_SERVERS)
def test_spellings_of_one_place(kind: str, uris: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for each in ("PGHOST", "PGHOSTADDR", "PGPORT"):
        monkeypatch.delenv(each, raising=False)
    assert {location_of(target(kind, uri)) for uri in uris} == {location_of(target(kind, uris[0]))}
    (text,) = {location_text(target(kind, uri), Path("/srv/project")) for uri in uris}
    assert text.startswith(f"{kind} at ")
    assert "secret" not in text


@pytest.mark.parametrize(
    ("kind", "uris"),
    [
        ("clickhouse", ["http://h/a", "http://h/b", "http://h/A", "http://h:8124/a", "http://g/a"]),
        ("qdrant", ["http://h", "http://h/prefix", "http://h:6334", "http://g"]),
        ("milvus", ["http://h", "https://h", "http://h/other", "http://h/Default", "http://h:1"]),
        ("opensearch", ["http://h", "https://h", "http://h/prefix", "http://h:9201"]),
        ("postgres", ["postgresql://h/a", "postgresql://h/A", "postgresql://h:5433/a", "postgresql:///a?host=/srv/pg"]),
        ("lance", ["s3://b/a", "s3://b/A", "s3://c/a", "gs://b/a", "s3://b/a?versionId=1"]),
    ],
)
def test_places_that_are_apart(kind: str, uris: list[str]) -> None:
    assert len({location_of(target(kind, uri)) for uri in uris}) == len(uris)
    assert len({location_text(target(kind, uri), Path("/srv/project")) for uri in uris}) == len(uris)


@pytest.mark.parametrize(
    ("kind", "uri", "text"),
    [
        ("postgres", "postgresql://ann:secret@h/db", "postgres at h:5432/db, schema public"),
        ("opensearch", "https://h/prefix", "opensearch at h:443/prefix"),
        ("lance", "s3://bucket/a/", "lance at s3://bucket/a"),
        ("lance", "/srv/index", "lance in /srv/index"),
        ("lance", "/srv/project/index/", "lance in index"),
        ("lance", "file:///srv/project/a/../index", "lance in index"),
        ("milvus", "/srv/project/index.db", "milvus in index.db"),
    ],
)
def test_a_location_as_text(kind: str, uri: str, text: str) -> None:
    assert location_text(target(kind, uri), Path("/srv/project")) == text


def test_a_password_of_an_object_store_is_no_part_of_the_text() -> None:
    text = location_text(target("lance", "s3://key:secret@bucket/a?token=secret"), Path("/srv/project"))
    assert text.startswith("lance at s3://key@bucket/a (")
    assert "secret" not in text


def test_schemas_and_endpoints_distinguish_locations() -> None:
    database = "postgresql://h/db"
    assert location_of(target("postgres", database, schema="a")) != location_of(target("postgres", database))
    assert location_of(target("postgres", database, schema="public")) == location_of(target("postgres", database))
    stores = [{}, {"aws_endpoint": "http://one:9000"}, {"aws_endpoint": "http://two:9000"}]
    assert len({location_of(target("lance", "s3://b/a", storage_options=each)) for each in stores}) == 3
    ways_in = [{"aws_endpoint": "http://one:9000/", "aws_access_key_id": "a"}, {"AWS_ENDPOINT": "http://ONE:9000"}]
    assert len({location_of(target("lance", "s3://b/a", storage_options=each)) for each in ways_in}) == 1
    # Of a server it does not matter how one gets in, or what is sent at once.
    assert location_of(target("milvus", "http://h", token="x", partition_prefix="p")) == location_of(
        target("milvus", "http://h")
    )
    assert location_of(target("opensearch", "http://h", api_key="x")) == location_of(target("opensearch", "http://h"))
    assert location_of(target("qdrant", "http://h:6333")) != location_of(target("milvus", "http://h:6333"))


def test_the_environment_says_where_postgres_is_if_the_address_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGHOST", "db.example.org")
    monkeypatch.setenv("PGPORT", "6000")
    assert location_of(target("postgres", "postgresql:///db")) == location_of(
        target("postgres", "postgresql://db.example.org:6000/db")
    )


_SPELLINGS = ["./index/", "other/../index", "{root}/index", "link", "via/index"]
_URLS = ["file://{root}/index", "file://localhost{root}/ind%65x"]


@pytest.mark.parametrize(
    ("kind", "second"),
    [
        *[(kind, each) for kind in ("lance", "clickhouse", "qdrant", "milvus") for each in _SPELLINGS],
        *[(kind, each) for kind in ("lance", "clickhouse") for each in _URLS],
    ],
)
@pytest.mark.parametrize("there", [True, False])
def test_spellings_of_a_folder(reject: Reject, tmp_path: Path, kind: str, second: str, there: bool) -> None:
    folder, ending = tmp_path / "index", ""
    if kind == "milvus":
        folder, ending = tmp_path / "index.db", ".db"
        second = second.rstrip("/") + ending
    if there:
        folder.mkdir()
    (tmp_path / f"link{ending}").symlink_to(folder)
    (tmp_path / "via").symlink_to(tmp_path)
    uri = second.format(root=tmp_path)
    error = reject(declared(f"{{type: {kind}, uri: {folder.name}}}", f"{{type: {kind}, uri: '{uri}'}}"))
    said = "targets.two.uri: two targets cannot share a place, and this is that of the target one (line 3)"
    assert [(each.line, str(each)) for each in error.problems] == [(4, said)]


def test_home_folders_and_hard_links_give_one_location(
    reject: Reject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    reject(declared("{type: lance, uri: index}", "{type: lance, uri: ~/index}"))
    (tmp_path / "one.db").touch()
    os.link(tmp_path / "one.db", tmp_path / "two.db")
    reject(declared("{type: milvus, uri: one.db}", "{type: milvus, uri: two.db}"))


def test_folders_that_are_apart_are_two_places(load: Load, tmp_path: Path) -> None:
    (tmp_path / "index").mkdir()
    for second in ("{type: lance, uri: index/more}", "{type: lance, uri: Index}", "{type: qdrant, uri: index}"):
        assert list(load(declared("{type: lance, uri: index}", second)).targets) == ["one", "two", "three"]


def test_addresses_with_secrets_are_not_shown(reject: Reject) -> None:
    first = "{type: postgres, uri: 'postgresql://ann:hunter2@localhost/db'}"
    second = "{type: postgres, uri: '${PG}'}"
    error = reject(declared(first, second), {"PG": "postgres://bob:hunter2@127.0.0.1:5432/db"})
    assert "hunter2" not in str(error)
    assert "is that of the target one (line 3)" in str(error)


def test_a_project_built_in_python_is_checked_too(tmp_path: Path) -> None:
    targets = {"one": {"type": "lance", "uri": "index"}, "two": {"type": "lance", "uri": str(tmp_path / "index")}}
    entities = {"Document": {"source": {"type": "files", "path": "docs"}, "targets": ["one", "two"]}}
    with pytest.raises(ValueError, match="that of the target one"):
        Project.model_validate({"name": "p", "root": tmp_path, "targets": targets, "entities": entities})


def test_places_of_targets_of_a_project() -> None:
    def own(uri: str, **options: str) -> Target:
        return target("python", uri, **{"class": "mine.index:Index", "options": options})

    assert location_of(own("https://h/a", key="1")) == location_of(own("https://h/a/", key="2"))
    apart = ["https://h/a", "https://h/b", "https://h:444/a", "odd+db://h/a", "https://h/a?base=x", "/srv/a"]
    assert len({location_of(own(each)) for each in apart}) == len(apart)
    assert location_text(own("/srv/project/index"), Path("/srv/project")) == "python in index"
    assert location_text(own("odd://ann:secret@h:99999/a"), Path("/srv/project")) == "python at odd://ann@h:99999/a"
    assert location_text(own("FILE:///srv/project/index"), Path("/srv/project")) == "python in index"


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(ValueError, match="must be a folder or a URL"):
        target("python", "http://[bad", **{"class": "mine.index:Index"})
