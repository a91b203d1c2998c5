"""What the application answers is what its own OpenAPI document says, whatever it is asked."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from instep.api.application import create_app
from instep.api.problems import MEDIA_TYPE
from instep.app import Instep, load
from tests.api.conftest import PROJECT, TOKEN, bearer, served, write

#: Also tables in namespaces, of which nothing is built, and a queue.
MORE = """\
  Ticket:
    source: {type: spark, format: parquet, path: tickets.parquet}
    key: [id]
    scope: path
    target: lance
namespaces: [1/2, 1/3]
queues:
  salts:
    on: sqlite:///salts.db
    key: k
    keys: {from: 0, below: 1000}
    source: {table: source}
    covered_by: [{table: cover}]
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Instep:
    """Something is indexed, one document has failed, and something is wanted."""
    folder = tmp_path_factory.mktemp("contract")
    (folder / "docs").mkdir()
    (folder / "instep.yaml").write_text(PROJECT + MORE)
    with closing(sqlite3.connect(folder / "salts.db")) as database:
        database.executescript(
            "CREATE TABLE source (k INTEGER PRIMARY KEY); CREATE TABLE cover (k INTEGER PRIMARY KEY)"
        )
    write(folder, 3)
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 this is none")
    found = load(folder)
    found.run(["Document"])
    found.want(["Document"], fresh_within=None)
    return found


@pytest.fixture(scope="module")
def schema(project: Instep) -> Iterator[Any]:
    app = create_app(project, token=TOKEN, loopback=True)
    with served(app) as address:
        loaded = schemathesis.openapi.from_dict(app.openapi())
        loaded.config.update(base_url=address)
        yield loaded


def test_every_error_is_documented_as_a_problem(schema: Any) -> None:
    for path, operations in schema.raw_schema["paths"].items():
        for method, operation in operations.items():
            for status, said in operation["responses"].items():
                kind = "application/json" if status.startswith("2") else MEDIA_TYPE
                assert list(said["content"]) == [kind], (path, method, status)
            assert {"401", "403", "500"} <= operation["responses"].keys()


def _check(schema: Any, examples: int) -> None:
    """Valid requests and others: no 5xx, and each answer as documented."""
    for operation in schema.get_all_operations():
        cases = [
            operation.ok().as_strategy(generation_mode=mode)
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        ]

        @settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(st.one_of(cases))
        def check(case: Any) -> None:
            response = case.call(headers=bearer())
            # What a filter may say is a language of its own, which the document cannot tell.
            is_filter = response.status_code == 400 and response.json().get("kind") == "FilterError"
            excluded = [positive_data_acceptance] if is_filter else []
            if response.status_code == 413:
                excluded.append(negative_data_rejection)  # It is one, which that check does not know.
            case.validate_response(response, excluded_checks=excluded)

        check()


def test_answers_are_as_documented(schema: Any) -> None:
    _check(schema, 1)


@pytest.mark.long
def test_answers_are_as_documented_at_length(schema: Any) -> None:
    _check(schema, 100)
