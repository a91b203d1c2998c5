"""Runs on a Spark cluster whose executors see neither Instep's sources nor the project's folder."""

from __future__ import annotations

import json

import pytest

from tests.e2e import corpus, truth
from tests.e2e.cluster.hosts import Hosts, instep

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

_DOCUMENTS = 40
_TRANSFORM = """
from helpers import shout

def loud(rows):
    return shout(rows)
"""
#: What a transform imports lies beside it, in a folder that executors do not see.
_HELPERS = """
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

def upper(text):
    return text.upper() if text else text

def shout(rows):
    return rows.withColumn("text", F.udf(upper, StringType())("text"))
"""


def test_executors_get_instep_and_the_projects_own_code_with_the_job(hosts: Hosts) -> None:
    docs = hosts.shared / "docs"
    corpus.write(docs, range(_DOCUMENTS))
    folder = hosts.declare("whole", docs, entity="transform: loudly:loud")
    (folder / "loudly.py").write_text(_TRANSFORM)
    (folder / "helpers.py").write_text(_HELPERS)
    done = instep(folder, "run", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    (result,) = json.loads(done.stdout)
    assert result["cpu"]["tasks"] > 0
    assert 0 < result["cpu"]["share"] < 1
    want = {(identity, text.upper()) for identity, text in truth.expected(docs)}
    assert set(truth.stored(hosts.shared / "whole" / "index")) == want


def test_a_source_that_executors_do_not_see_is_refused_before_a_job(hosts: Hosts) -> None:
    docs = hosts.laptop / "docs"
    corpus.write(docs, range(_DOCUMENTS))
    folder = hosts.declare("source", docs)
    done = instep(folder, "run", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"does not see {docs}" in done.stderr + done.stdout
    assert not list((hosts.shared / "source" / "index").glob("*.alias-*"))


def test_an_index_that_executors_do_not_see_is_refused_before_a_job(hosts: Hosts) -> None:
    docs = hosts.shared / "for-nowhere"
    corpus.write(docs, range(_DOCUMENTS))
    folder = hosts.declare("target", docs, index=hosts.laptop / "index")
    done = instep(folder, "run", "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"does not see {hosts.laptop}" in done.stderr + done.stdout


def test_a_listed_document_that_an_executor_does_not_find_is_no_skip(hosts: Hosts) -> None:
    docs = hosts.shared / "half"
    corpus.write(docs / "seen", range(10))
    corpus.write(docs / "unseen", range(10, 20))
    folder = hosts.declare("half", docs)
    done = instep(folder, "run", "--json")
    assert done.returncode == 75, done.stdout + done.stderr
    assert "does not find" in done.stdout + done.stderr
    assert not list((hosts.shared / "half" / "index").glob("*.alias-*"))
