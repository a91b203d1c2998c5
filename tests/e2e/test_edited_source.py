"""A project file that names another table, feed or class of documents, or other columns or options of it: versions are
those of the one that was read, so nothing of it is taken for the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import instep
from instep.entities.plan_request import Kind
from instep.sources.feed import places_of
from tests.e2e.truth import served
from tests.jobs.own_code import forget

PLAIN = "source: {type: spark, path: a}, document: {key: id, text: body, version: v}"


def declare(root: Path, entity: str) -> None:
    (root / "instep.yaml").write_text(f"""
name: desk
engine: inline
targets: {{index: {{type: lance, uri: index}}}}
entities:
  Ticket: {{{entity}, deletes: {{share: 1}}}}
""")


def write(root: Path, **changed: list[Any]) -> None:
    """The tables `a` and `b`, whose rows have the same keys and versions and other texts; `lake` has those of `a`."""
    columns = {"id": [1, 2, 3], "other": [3, 1, 2], "v": [1, 1, 1], "w": [1, 1, 1], "gone": [False, False, True]}
    for name in ("a", "b"):
        (root / name).mkdir(exist_ok=True)
        table = pa.table(columns | {"body": [f"{name}{number}" for number in (1, 2, 3)]} | changed)
        pq.write_table(table, root / name / "rows.parquet")
        if name == "a" and not changed:
            write_deltalake(root / "lake", table)


def documents(root: Path) -> set[tuple[str, str]]:
    table = lance.dataset(served(root / "index", "Ticket")).to_table()
    return set(zip(table["source_uri"].to_pylist(), table["text"].to_pylist(), strict=True))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (PLAIN, PLAIN.replace("path: a", "path: b")),
        (PLAIN, PLAIN.replace("key: id", "key: other")),
        (PLAIN, PLAIN.replace("type: spark, path: a", "type: delta, path: lake").replace("key: id", "key: other")),
        (
            "source: {type: delta, path: lake}, document: {key: id, text: body}",
            "source: {type: delta, path: lake}, document: {key: [id, other], text: body}",
        ),
        (
            "source: {type: delta, path: lake}, document: {key: id, text: body}",
            "source: {type: delta, path: lake}, document: {key: id, text: body, deleted: gone}",
        ),
        (
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: a}, key: id, text: body, version: v}}}"),
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: b}, key: id, text: body, version: v}}}"),
        ),
        (
            PLAIN.replace("v}", "v, with: {notes: {source: {type: spark, path: a}, key: id, text: body, version: v}}}"),
            PLAIN.replace(
                "v}", "v, with: {notes: {source: {type: spark, path: a}, key: other, text: body, version: v}}}"
            ),
        ),
    ],
)
def test_rows_of_another_table_or_key_are_read_though_their_versions_are_the_same(
    tmp_path: Path, before: str, after: str
) -> None:
    edited, fresh = tmp_path / "edited", tmp_path / "fresh"
    for root in (edited, fresh):
        root.mkdir()
        write(root)
    declare(edited, before)
    instep.load(edited).run()
    declare(edited, after)
    instep.load(edited).run(allow_deletes=True)
    declare(fresh, after)
    instep.load(fresh).run()
    assert documents(edited) == documents(fresh)
    (again,) = instep.load(edited).run()
    assert again.kind is Kind.NOTHING


def test_a_version_of_another_column_is_another_version(tmp_path: Path) -> None:
    write(tmp_path)
    declare(tmp_path, PLAIN)
    instep.load(tmp_path).run()
    write(tmp_path, v=[2, 1, 1], body=["new", "a2", "a3"])
    declare(tmp_path, PLAIN.replace("version: v", "version: w"))
    (plan,) = instep.load(tmp_path).plan()
    assert "document changed" in " ".join(plan.why)
    instep.load(tmp_path).run()
    assert ("table://Ticket/1", "new") in documents(tmp_path)


def test_a_plan_says_that_the_table_is_another_one(tmp_path: Path) -> None:
    write(tmp_path)
    declare(tmp_path, PLAIN)
    instep.load(tmp_path).run()
    declare(tmp_path, PLAIN.replace("path: a", "path: b"))
    (plan,) = instep.load(tmp_path).plan()
    assert "source changed" in " ".join(plan.why)


def put(where: str, text: str) -> None:
    with fsspec.open(where, "w") as file:
        file.write(json.dumps({"id": "tides", "version": 1, "text": text}) + "\n")


def texts(root: Path) -> set[str]:
    return {text for _, text in documents(root)}


def test_a_feed_at_another_path_is_read_though_its_versions_are_the_same(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        put(str(tmp_path / name / "1.jsonl"), f"The text of {name}.")
    declare(tmp_path, "source: {type: feed, path: a}")
    instep.load(tmp_path).run()
    declare(tmp_path, "source: {type: feed, path: b}")
    (plan,) = instep.load(tmp_path).plan()
    assert "source changed" in " ".join(plan.why)
    instep.load(tmp_path).run()
    assert texts(tmp_path) == {"The text of b."}
    (again,) = instep.load(tmp_path).run()
    assert again.kind is Kind.NOTHING


def test_a_feed_is_the_same_in_a_project_that_is_moved(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    (before / "a").mkdir(parents=True)
    put(str(before / "a" / "1.jsonl"), "A text.")
    declare(before, "source: {type: feed, path: a}")
    instep.load(before).run()
    before.rename(after)
    assert "source changed" not in " ".join(next(iter(instep.load(after).plan())).why)


def test_a_feed_is_the_same_for_another_user_of_its_store(tmp_path: Path) -> None:
    place = f"memory://{tmp_path.name}/feed"
    put(f"{place}/1.jsonl", "A text.")
    declare(tmp_path, f"source: {{type: feed, path: '{place}', storage_options: {{token: one}}}}")
    instep.load(tmp_path).run()
    declare(tmp_path, f"source: {{type: feed, path: '{place}', storage_options: {{token: another}}}}")
    (result,) = instep.load(tmp_path).run()
    assert result.kind is Kind.NOTHING
    assert places_of(["s3://me:secret@store/feed"]) == places_of(["s3://store/feed"])


SHOP = "shop_of_a_test"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / f"{SHOP}.py").write_text("""
class Shop:
    def __init__(self, url: str, token: str) -> None:
        self.url = url

    def list(self) -> list[tuple[str, str]]:
        return [("tides", "1")]

    def read(self, id: str) -> str:
        return f"The text of {self.url.rpartition('/')[2]}."
""")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    forget(SHOP)


def declare_shop(root: Path, url: str, token: str) -> None:
    declare(root, f"source: {{type: python, class: '{SHOP}:Shop', options: {{url: '{url}', token: {token}}}}}")


def test_a_class_with_other_options_reads_again_though_its_versions_are_the_same(shop: Path) -> None:
    declare_shop(shop, "https://a", "first")
    instep.load(shop).run()
    declare_shop(shop, "https://b", "first")
    (plan,) = instep.load(shop).plan()
    assert "source changed" in " ".join(plan.why)
    instep.load(shop).run()
    assert texts(shop) == {"The text of b."}
    (again,) = instep.load(shop).run()
    assert again.kind is Kind.NOTHING


def test_another_secret_of_a_class_reads_nothing_again(shop: Path) -> None:
    declare_shop(shop, "https://me:old@a", "first")
    instep.load(shop).run()
    declare_shop(shop, "https://me:new@a", "second")
    (result,) = instep.load(shop).run()
    assert result.kind is Kind.NOTHING
