from __future__ import annotations

from collections.abc import Iterator

import pytest

from instep.targets.milvus.location import Location
from instep.targets.milvus.target import MilvusTarget
from tests.servers.milvus import running_milvus


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Milvus Lite in this process: opened once, since that takes long."""
    from milvus_lite.server_manager import server_manager_instance

    path = str(tmp_path_factory.mktemp("milvus") / "lite.db")
    yield path
    server_manager_instance.release_server(path)


@pytest.fixture
def embedded(file: str) -> Iterator[MilvusTarget]:
    yield MilvusTarget(file, None, "bucket")
    clear(file)


@pytest.fixture
def served() -> Iterator[MilvusTarget]:
    uri = running_milvus().url()
    yield MilvusTarget(uri, "root:hunter2-s3cret", "bucket")
    clear(uri)


def clear(uri: str) -> None:
    """Drop whatever a test left."""
    place = Location(uri)
    for collection in place.call("list_collections"):
        for alias in place.call("list_aliases", collection)["aliases"]:
            place.call("drop_alias", alias)
        place.call("drop_collection", collection)
