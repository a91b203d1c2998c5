"""What files tell of an index without the library of its target is what the target itself says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.targets.clickhouse.target import ClickHouseTarget
from instep.targets.lance.target import LanceTarget
from instep.targets.milvus.location import Location, collection
from instep.targets.milvus.target import MilvusTarget
from instep.targets.on_disk import is_there
from instep.targets.qdrant.target import QdrantTarget
from instep.testing.table_rows import SPECS

PHYSICAL, OTHER, ALIASES = "Document@v2__1", "Document@v2__2", ["Document", "Document@v2"]


def lance(place: Path) -> tuple[Any, Callable[[str], object]]:
    def dropped(alias: str) -> None:
        for each in place.glob(f"{alias}.alias-*.json"):
            each.unlink()

    return LanceTarget(str(place)), dropped


def qdrant(place: Path) -> tuple[Any, Callable[[str], object]]:
    return QdrantTarget(str(place)), lambda alias: (place / alias).unlink()


def milvus(place: Path) -> tuple[Any, Callable[[str], object]]:
    return MilvusTarget(str(place)), lambda alias: Location(str(place)).call("drop_alias", collection(alias))


def clickhouse(place: Path) -> tuple[Any, Callable[[str], object]]:
    target = ClickHouseTarget(str(place))

    def dropped(alias: str) -> None:
        with target.session() as session:
            session.command(f"DROP VIEW instep.`{alias}` SYNC")

    return target, dropped


@pytest.fixture(params=[lance, qdrant, milvus, clickhouse])
def made(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[Any, Callable[[str], object], Callable[..., bool]]]:
    kind, place = request.param.__name__, tmp_path / "index.db"
    target, dropped = request.param(place)
    yield target, dropped, lambda *asked: is_there(kind, place, *asked)
    if kind == "milvus":
        from milvus_lite.server_manager import server_manager_instance

        server_manager_instance.release_server(str(place))


def test_an_index_and_its_aliases_are_there_until_they_are_dropped(
    made: tuple[Any, Callable[[str], object], Callable[..., bool]],
) -> None:
    target, dropped, there = made
    assert not there(PHYSICAL, [])
    for physical in (PHYSICAL, OTHER):
        if isinstance(target, ClickHouseTarget):
            target.create(physical, SPECS)
        else:
            target.create(physical, 8, 4)
    assert there(PHYSICAL, [])
    assert not there(PHYSICAL, ALIASES)
    for alias in ALIASES:
        target.promote(alias, PHYSICAL, 5)
    assert there(PHYSICAL, ALIASES)
    dropped(ALIASES[1])
    assert not there(PHYSICAL, ALIASES)
    assert there(PHYSICAL, ALIASES[:1])
    target.promote(ALIASES[1], PHYSICAL, 6)
    target.promote(ALIASES[0], OTHER, 6)
    target.promote(ALIASES[1], OTHER, 7)
    target.drop(PHYSICAL)
    assert not there(PHYSICAL, ALIASES)
    assert there(OTHER, ALIASES)


def test_a_layout_that_is_not_known_tells_as_much_as_its_folder(tmp_path: Path) -> None:
    (tmp_path / "index.db").write_text("of another version")
    assert is_there("milvus", tmp_path / "index.db", PHYSICAL, ALIASES)
    assert is_there("clickhouse", tmp_path, PHYSICAL, ALIASES)
    assert is_there("python", tmp_path, PHYSICAL, ALIASES)
    assert not is_there("python", tmp_path / "none", PHYSICAL, ALIASES)
