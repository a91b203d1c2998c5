"""What a user of tables does every day: build, change, delete, move, and rebuild."""

from __future__ import annotations

import sys
import uuid
from pathlib import Path

import pytest

from instep.domain.jobs import JobState
from instep.entities.plan_request import Kind
from tests.servers.postgres import running_postgres

from .quick import QuickShop
from .shop import Shop

#: What each of them can do, `make test` sees on one; on the others it is the longest of these stories. It needs Spark,
#: and so does what a user writes for it; of the others only `make soak` does, on the other targets.
ON_ALL = pytest.mark.parametrize(
    "any_shop",
    ["lance", *(pytest.param(each, marks=pytest.mark.proof) for each in ("clickhouse", "postgres"))],
    indirect=True,
)
ON_ONE = pytest.mark.parametrize(
    "any_shop",
    ["quick", *(pytest.param(each, marks=pytest.mark.long) for each in ("clickhouse", "postgres"))],
    indirect=True,
)


@pytest.fixture
def quick(tmp_path: Path) -> QuickShop:
    """In Lance, and without Spark."""
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index")
    made.declare()
    made.fill()
    return made


@pytest.fixture
def any_shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    if request.param == "quick":
        quick: Shop = request.getfixturevalue("quick")
        return quick
    target = f"type: {request.param}, uri: index"
    if request.param == "postgres":
        server = running_postgres()
        database = f"shop_{uuid.uuid4().hex[:8]}"
        server.execute(f"CREATE DATABASE {database}")
        target = f"type: postgres, uri: '{server.url(database)}'"
    made = Shop(tmp_path / "shop", target)
    made.declare()
    made.fill()
    return made


@ON_ALL
def test_tables_become_a_graph_and_follow_every_change(any_shop: Shop) -> None:
    shop = any_shop
    built = shop.run()
    assert {name: each.state for name, each in built.items()} == dict.fromkeys(
        ["Person", "Ticket@1/2", "Ticket@1/3", "Like"], JobState.COMPLETED
    )
    assert shop.wrong() == {}
    assert all(each.counts.balanced for each in built.values())

    assert {each.plan.kind for each in shop.run().values()} == {Kind.NOTHING}

    shop.put("people", id=3, name="renamed")
    shop.put("people", id=99, name="new")
    shop.put("people", id=4, gone=True)
    shop.put("tickets", id=1, author=5)  # another author: another edge
    shop.put("tickets", id=2, author=None)  # none: no edge
    shop.put("tickets", id=11, author=6)  # had none
    shop.put("tickets", id=4, gone=True)
    shop.put("tickets", id=13, gone=False)  # was deleted before it was ever indexed
    shop.put("tickets", id=5, path="1/2/9/")  # moves to the other namespace
    shop.put("likes", person=0, ticket=0, gone=True)
    shop.save()
    changed = shop.run()
    assert shop.wrong() == {}
    # Files that were written anew are read whole.
    there = len(shop.alive("people"))
    gone = len(shop.rows["people"]) - there
    assert changed["Person"].counts.as_dict() | {"bytes_read": 0} == {
        **dict.fromkeys(changed["Person"].counts.as_dict(), 0),
        "read": there + gone,
        "written": there,
        "deleted": gone,
        "rows_written": there,
        "rows_deleted": gone,
    }
    assert {each.plan.kind for each in shop.run().values()} == {Kind.NOTHING}


@ON_ONE
def test_a_row_that_left_a_namespace_survives_jobs_of_that_namespace(any_shop: Shop) -> None:
    shop = any_shop
    shop.run()
    shop.put("tickets", id=5, path="1/2/9/")
    shop.save()
    shop.run("Ticket@1/2")  # where it came to; where it came from has not looked yet
    shop.run("Ticket@1/3", full_refresh=True)
    assert shop.wrong("Ticket") == {}


@ON_ONE
def test_a_rebuild_of_a_namespace_omits_rows_deleted_from_the_source(any_shop: Shop) -> None:
    shop = any_shop
    shop.run()
    shop.remove("tickets", 1)
    shop.remove("tickets", 2)
    shop.save()
    shop.run()
    assert shop.wrong() != {}  # Nothing says that rows were there.
    shop.run("Ticket", full_refresh=True)
    assert shop.wrong() == {}


def test_a_rebuild_of_the_whole_is_served_when_it_is_there(quick: QuickShop) -> None:
    quick.run()
    before = quick.setup("Person").target.served("Person")
    quick.remove("people", 1)
    quick.save()
    result = quick.run("Person", full_refresh=True)["Person"]
    assert result.promoted
    assert quick.setup("Person").target.served("Person") != before
    assert quick.wrong("Person") == {}


def test_deleted_and_inserted_again_at_one_watermark_is_there(quick: QuickShop) -> None:
    quick.run()
    now = quick.now
    quick.put("people", id=3, gone=True, at=now)
    quick.save()
    quick.run("Person")
    quick.put("people", id=3, name="again", gone=False, at=now)
    quick.save()
    quick.run("Person", full_refresh=True)
    assert quick.wrong("Person") == {}


def test_an_index_that_is_gone_is_built_again(quick: QuickShop) -> None:
    quick.run()
    quick.edit("uri: index", "uri: elsewhere")
    built = quick.run()
    assert {each.plan.kind for each in built.values()} == {Kind.REBUILD}
    assert quick.wrong() == {}


def test_a_project_may_be_moved(quick: QuickShop) -> None:
    quick.run()
    moved = quick.root.rename(quick.root.with_name("moved"))
    quick.root = moved
    assert {each.plan.kind for each in quick.run().values()} == {Kind.NOTHING}


#: What a user writes beside the project.
TRANSFORM = """
from pyspark.sql import functions as f


def shouted(frame):
    return frame.withColumn("title", f.upper("title")).withColumn("words", f.size(f.split("title", " ")))
"""


def test_a_query_and_a_transform_come_before_the_graph(shop: Shop) -> None:
    """Rows that the query leaves out are not there, whatever becomes of them; other code is another index."""
    module = f"transform_{uuid.uuid4().hex[:8]}"
    code = shop.root / f"{module}.py"
    code.write_text(TRANSFORM)
    query = "SELECT *, author AS maker FROM source WHERE author IS NOT NULL"
    shop.edit("path: tickets", f"path: tickets, sql: '{query}'")
    shop.edit("scope: path", f"transform: '{module}:shouted'\n    scope: path")
    shop.edit("slices: 3", "slices: 1")
    shop.edit("properties: [id, title]}\n    edges", "properties: [id, title, words, maker]}\n    edges")

    def there() -> dict[int, tuple[str, int, int]]:
        rows = [each for each in shop.alive("tickets") if each["author"] is not None and each["path"] < "1/3/"]
        return {row["id"]: (row["title"].upper(), 2, row["author"]) for row in rows}

    def found() -> dict[int, tuple[str, int, int]]:
        return {row["id"]: (row["title"], row["words"], row["maker"]) for row in shop.stored("Ticket")}

    assert shop.run("Ticket@1/2")["Ticket@1/2"].state is JobState.COMPLETED
    assert found() == there()
    edges = {row["id"]: row["from_id"] for row in shop.stored("Ticket", "OPENED")}
    assert edges == {number: maker for number, (_, _, maker) in there().items()}

    shop.put("tickets", id=2, title="ticket changed")
    shop.put("tickets", id=300, path="1/2/1/", title="ticket new", author=None)  # the query leaves it out
    shop.save()
    changed = shop.run("Ticket@1/2")["Ticket@1/2"]
    # Files that were written anew are read whole; `read` are the rows that the query leaves.
    rows = [each.values for each in shop.rows["tickets"].values()]
    asked = [each for each in rows if each["author"] is not None and each["path"] < "1/3/"]
    assert (changed.plan.kind, changed.counts.read) == (Kind.REFRESH, len(asked))
    assert found() == there()

    before = shop.setup("Ticket").fingerprint
    code.write_text(TRANSFORM.replace("f.upper", "f.lower"))
    del sys.modules[module]  # as in the next process
    after = shop.setup("Ticket").fingerprint
    assert {part for part, value in after.items() if before[part] != value} == {"transform"}
