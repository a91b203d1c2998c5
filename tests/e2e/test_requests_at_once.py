"""A limit of requests at once holds over the tasks of Spark's waves and over workers, counted at a real endpoint."""

from __future__ import annotations

import subprocess
import sys
from contextlib import closing

import pytest

from instep.container import Container
from instep.pipeline.documents.embed.http import close_connections
from tests.documents.endpoint import serving
from tests.documents.test_slots import ASKING

from . import corpus
from .conftest import Location

DOCUMENTS = 40
COMMAND = [sys.executable, "-m", "instep", "run", "--engine"]


def declare(place: Location, url: str, limit: int) -> None:
    corpus.write(place.docs, range(DOCUMENTS))
    file = corpus.project(place.root, place.docs, extra="spark: {master: 'local[2]'}")
    model = f"url: '{url}', model: model of the project, dimensions: 3"
    embed = f"{{type: openai, {model}, batch: 2, requests_at_once: {limit}}}"
    file.write_text(file.read_text().replace("{type: hashing, dimensions: 32}", embed))


@pytest.mark.spark
def test_two_workers_on_spark_and_other_processes_never_exceed_the_limit(place: Location) -> None:
    with serving() as endpoint:
        endpoint.pause = 0.05
        declare(place, endpoint.url, 2)
        others = [subprocess.Popen([sys.executable, "-c", ASKING, endpoint.url, "2"]) for _ in range(2)]
        running = [subprocess.Popen([*COMMAND, "spark"], cwd=place.root) for _ in range(2)]
        assert [each.wait(300) for each in (*running, *others)] == [0, 0, 0, 0]
        assert {body["model"] for body in endpoint.bodies} == {"m", "model of the project"}
        assert endpoint.most_open == 2, "the limit is used, and never exceeded"


def test_a_worker_takes_its_share_where_the_others_are_elsewhere(place: Location) -> None:
    """The other one is on another machine: no lock of this one tells of it."""
    with serving() as endpoint:
        endpoint.pause = 0.02
        declare(place, endpoint.url, 2)
        with closing(Container(place.open().project)) as container:
            container.ledger().workers.register("elsewhere", kind="worker", host="another", pid=1)
        try:
            done = subprocess.run([*COMMAND, "inline"], cwd=place.root, check=False, timeout=300)
        finally:
            close_connections()
        assert done.returncode == 0
        assert len(endpoint.asked) > DOCUMENTS
        assert endpoint.most_open == 1
