"""The project built in Python, and what its settings mean."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import instep
from instep.project import Chunk, DocumentEntity, FilesSource, LanceTarget, OpenAIEmbed, Project, json_schema
from instep.project.fields import parse_bytes

from .declared import documents, files, files_as_declared


def project(root: Path = Path("/srv"), **settings: Any) -> Project:
    values: dict[str, Any] = {
        "name": "p",
        "targets": {"index": LanceTarget(uri="idx")},
        "entities": {"Document": DocumentEntity(source=FilesSource(path=("docs",)))},
        "root": root,
    }
    return Project(**{**values, **settings})


def test_a_project_is_built_in_python_with_defaults() -> None:
    built = instep.Project(
        name="p",
        targets={"index": LanceTarget(uri="idx")},
        entities={"Document": DocumentEntity(source=FilesSource(path=("docs",)))},
    )
    entity = documents(built)
    assert (entity.buckets, entity.slice_rows, entity.priority, entity.work_factor) == (16, 10_000, 40, 1.0)
    assert (entity.chunk.size, entity.chunk.overlap) == (800, 0)
    assert (entity.embed.type, entity.embed.dimensions) == ("hashing", 384)
    assert (entity.limits.max_document_bytes, entity.limits.max_line_bytes) == (256_000_000, 1_000_000)
    assert (entity.deletes.share, entity.deletes.floor) == (0.2, 100)
    assert (built.engine, built.spark.master, built.state) == ("auto", "local[*]", ".instep")
    assert built.root == Path.cwd()


def test_the_only_target_is_the_default() -> None:
    assert project().target_of("Document") == "index"


def test_nothing_can_be_changed_or_added() -> None:
    built = project()
    with pytest.raises(ValidationError):
        built.name = "other"
    with pytest.raises(ValidationError):
        project(colour="red")


def test_a_project_travels_to_workers() -> None:
    # Plain text, as a user writes it; pydantic makes a secret of it.
    target = LanceTarget(uri="x", storage_options={"key": "s3cret"})  # type: ignore[dict-item]  # as said above
    built = project(targets={"index": target})
    assert pickle.loads(pickle.dumps(built)) == built


def test_paths_are_relative_to_the_root() -> None:
    built = project(
        targets={"index": LanceTarget(uri="sub/../idx"), "far": LanceTarget(uri="s3://bucket/idx")},
        entities={"Document": DocumentEntity(source=FilesSource(path=("docs", "/abs", "memory://x")), target="far")},
    )
    assert built.ledger_url == "sqlite:////srv/.instep/ledger.db"
    assert built.state_dir == Path("/srv/.instep")
    assert built.resolved_target("index").uri == "/srv/idx"
    assert built.resolved_target("far").uri == "s3://bucket/idx"
    assert files(built).path == ("/srv/docs", "/abs", "memory://x")
    assert files_as_declared(built).path == ("docs", "/abs", "memory://x")


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    built = project(state="~/state", ledger="sqlite:///~/l.db", targets={"index": LanceTarget(uri="~/idx")})
    assert built.state_dir == Path("/home/me/state")
    assert built.ledger_url == "sqlite:////home/me/l.db"
    assert built.resolved_target("index").uri == "/home/me/idx"


@pytest.mark.parametrize(
    ("ledger", "url"),
    [
        ("sqlite:////var/l.db", "sqlite:////var/l.db"),
        ("sqlite:///l.db?timeout=5", "sqlite:////srv/l.db?timeout=5"),
        ("sqlite+pysqlite:///l.db", "sqlite+pysqlite:////srv/l.db"),
        ("sqlite:///:memory:", "sqlite:///:memory:"),
        ("sqlite://", "sqlite://"),
        ("postgresql+psycopg://u:p@h/db", "postgresql+psycopg://u:p@h/db"),
    ],
)
def test_only_relative_sqlite_paths_are_resolved(ledger: str, url: str) -> None:
    assert project(ledger=ledger).ledger_url == url


@pytest.mark.parametrize(
    ("ledger", "says"),
    [
        ("ledger.db", "must be a database URL"),
        ("oracle://ann:hunter2@h/db", "must begin with sqlite:///"),
        ("sqlite+aiosqlite:///hunter2.db", "must begin with sqlite:///"),
        ("postgresql://ann:hunt/er2@h/db", "as %-codes"),
        ("mariadb://ann:hunt@er2@h/db", "as %-codes"),
        ("mysql://ann:hunter2@h", "must look like"),
    ],
)
def test_a_ledger_url_that_cannot_be_used_is_refused_without_repeating_it(ledger: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        project(ledger=ledger)
    assert "er2" not in str(refused.value)


SERVER = "postgresql://ann:hunter2@h/db"


@pytest.mark.parametrize("url", ["s3://bucket/prefix", "gs://bucket", "az://c/p", "file:///mnt/shared"])
def test_state_at_a_url_leaves_caches_in_the_project(url: str) -> None:
    built = project(ledger=SERVER, state=url)
    assert (built.state_url, built.state_dir) == (url, Path("/srv/.instep"))
    assert project(ledger=SERVER).state_url is None


@pytest.mark.parametrize(
    ("ledger", "state", "says"),
    [
        ("sqlite:///l.db", "s3://bucket/prefix", "a SQLite ledger is on this machine's disk"),
        ("sqlite:///l.db", "file:///mnt/shared", "a SQLite ledger is on this machine's disk"),
        (SERVER, "memory://x", "a URL that all servers reach"),
        (SERVER, "http://host/x", "a URL that all servers reach"),
        (SERVER, "zip://x::s3://bucket/a.zip", "a URL that all servers reach"),
        (SERVER, "s4://bucket", "a URL that all servers reach"),
        (SERVER, "s3://", "must name a bucket"),
        (SERVER, "file:///", "mounted on all servers"),
        (SERVER, "file://host/x", "mounted on all servers"),
        (SERVER, "s3://ann:hunter2@bucket/x", "must have no password"),
        (SERVER, "az://c/x?sig=hunter2", "must have no password"),
    ],
)
def test_state_at_a_url_that_cannot_be_used_is_refused_without_repeating_it(ledger: str, state: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says) as refused:
        project(ledger=ledger, state=state)
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("ledger", "label"),
    [
        ("sqlite:///.instep/a@b.db?timeout=3", "sqlite:///.instep/a@b.db"),
        ("postgresql://ann:hunter2@h:6543/db?sslmode=require", "postgresql://h:6543/db"),
        ("mariadb+pymysql://ann:hunt%40er2@h/db", "mariadb://h/db"),
        ("postgres:///db?host=/run/pg", "postgres:///db"),
    ],
)
def test_a_ledgers_label_is_fit_to_be_shown(ledger: str, label: str) -> None:
    assert project(ledger=ledger).ledger_label == label


def test_secrets_are_neither_shown_nor_dumped() -> None:
    built = project(
        ledger="postgresql://user:hunter2@host/db?password=hunter2",
        targets={"index": {"type": "lance", "uri": "x", "storage_options": {"key": "hunter2"}}},
        entities={
            "Document": DocumentEntity(
                source=FilesSource(
                    path=("docs",),
                    storage_options={"client": {"secret": "hunter2"}},  # type: ignore[dict-item]  # pydantic makes it one
                ),
                embed=OpenAIEmbed(
                    model="m",
                    dimensions=8,
                    api_key="hunter2",  # type: ignore[arg-type]  # pydantic makes a secret of it
                ),
            )
        },
    )
    assert "hunter2" not in repr(built)
    assert "hunter2" not in str(built.model_dump(exclude={"ledger"}))
    assert built.ledger_label == "postgresql://host/db"
    target = built.resolved_target("index")
    assert isinstance(target, LanceTarget)
    assert target.storage() == {"key": "hunter2"}
    assert files(built).storage() == {"client": {"secret": "hunter2"}}


@pytest.mark.parametrize(
    "settings",
    [
        {"chunk": {"size": 100, "overlap": 100}},
        {"chunk": {"size": 0}},
        {"buckets": 0},
        {"buckets": 1025},
        {"buckets": True},
        {"slice_rows": 999},
        {"slice_rows": 50_001},
        {"work_factor": 0},
        {"work_factor": float("nan")},
        {"deletes": {"share": 1.1}},
        {"embed": {"type": "hashing", "dimensions": 0}},
        {"embed": {"type": "openai", "model": "m"}},
        {"embed": {"type": "openai", "model": "m", "dimensions": 3, "url": "ftp://x"}},
        {"embed": {"type": "openai", "model": "m", "dimensions": 3, "api_key_header": "api-key"}},
        {"embed": {"type": "openai", "model": "m", "dimensions": 3, "api_key": "k", "api_key_header": "api key"}},
        {"embed": {"type": "openai", "model": "m", "dimensions": 3, "url": "http://x?v=1", "batch_api": True}},
        {"limits": {"max_document_bytes": 0}},
        {"limits": {"max_chunks": 0}},
        {"limits": {"on_oversize": "ignore"}},
        {"source": {"type": "files", "path": []}},
        {"source": {"path": "docs"}},
        {"transform": "no_colon"},
        {"transform": "pack age:f"},
        {"transform": "package.module:f:g"},
    ],
)
def test_values_out_of_bounds_are_refused(settings: dict[str, Any]) -> None:
    good = {"source": {"type": "files", "path": "docs"}}
    assert DocumentEntity.model_validate(good).buckets == 16
    with pytest.raises(ValidationError):
        DocumentEntity.model_validate({**good, **settings})


def test_the_limits_themselves_are_allowed() -> None:
    for settings in ({"buckets": 1}, {"buckets": 1024}, {"slice_rows": 1_000}, {"slice_rows": 50_000}):
        DocumentEntity.model_validate({"source": {"type": "files", "path": "docs"}, **settings})
    assert Chunk(size=2, overlap=1).overlap == 1


@pytest.mark.parametrize("name", ["", "9lives", "with space", "a-b", "Dok@x", "x" * 101])
def test_entity_names_are_those_of_references(name: str) -> None:
    with pytest.raises(ValidationError, match="letters, digits and underscores"):
        project(entities={name: DocumentEntity(source=FilesSource(path=("docs",)))})


def test_entities_that_differ_in_case_only_are_refused() -> None:
    entity = DocumentEntity(source=FilesSource(path=("docs",)))
    with pytest.raises(ValidationError, match="in case only"):
        project(entities={"Document": entity, "document": entity})


def test_a_transform_needs_spark() -> None:
    entity = DocumentEntity(source=FilesSource(path=("docs",)), transform="pkg.mod:f")
    assert project(entities={"Document": entity}).entities["Document"].transform == "pkg.mod:f"
    with pytest.raises(ValidationError, match="needs Spark"):
        project(entities={"Document": entity}, engine="inline")


def test_spark_is_reached_one_way() -> None:
    with pytest.raises(ValidationError, match="not both"):
        project(spark={"master": "local[2]", "remote": "sc://host"})


def test_spark_settings_may_be_numbers_and_booleans() -> None:
    built = project(spark={"config": {"a": 2, "b": True, "c": "1g"}})
    assert built.spark.config == {"a": "2", "b": "true", "c": "1g"}


@pytest.mark.parametrize(
    ("text", "size"),
    [("256MB", 256_000_000), ("1 KiB", 1024), ("1.5mb", 1_500_000), ("7", 7), ("7b", 7), ("2GiB", 2**31), (12, 12)],
)
def test_byte_sizes(text: str | int, size: int) -> None:
    assert parse_bytes(text) == size


@given(st.integers(1, 10**15))
def test_whole_numbers_of_bytes_are_kept_exactly(size: int) -> None:
    assert parse_bytes(str(size)) == parse_bytes(f"{size}B") == size


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("30d", 30 * 86_400_000), ("1h30m", 5_400_000), ("2 w", 14 * 86_400_000)]
)
def test_a_time_to_live_is_a_duration(text: str, milliseconds: int) -> None:
    assert (
        project(entities={"Document": {"source": {"type": "files", "path": "docs"}, "ttl": text}})
        .entities["Document"]
        .ttl
        == milliseconds
    )


@pytest.mark.parametrize("text", ["", "0s", "1y", "30", 30, -1, "1h ago", True])
def test_an_invalid_ttl_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValidationError, match="must be a duration"):
        project(entities={"Document": {"source": {"type": "files", "path": "docs"}, "ttl": text}})


def test_every_setting_is_described_in_the_schema() -> None:
    schema = json_schema()
    parts = {**schema["$defs"], "Project": schema}
    settings = [(name, key, value) for name, part in parts.items() for key, value in part.get("properties", {}).items()]
    assert len(settings) > 30
    assert [(name, key) for name, key, value in settings if not value.get("description")] == []
    assert "root" not in schema["properties"]


def test_variants_must_say_their_type_in_the_schema() -> None:
    definitions = json_schema()["$defs"]
    for name in ("FilesSource", "LanceTarget", "HashingEmbed", "OpenAIEmbed", "SentenceTransformersEmbed"):
        assert "type" in definitions[name]["required"]


def test_a_lease_is_neither_short_nor_long() -> None:
    assert project().lease == 300_000
    assert project(lease="15m").lease == 900_000
    for outside in ("119s", "61m"):
        with pytest.raises(ValidationError, match="must be from 2m to 1h"):
            project(lease=outside)


def test_jobs_are_kept_for_as_long_as_their_losses_count() -> None:
    assert project().retention == 30 * 24 * 3_600_000
    assert project(retention="6h").retention == 6 * 3_600_000
    with pytest.raises(ValidationError, match=r"not be less than `deletes.window` of Document, which is 6h"):
        project(retention="5h")
