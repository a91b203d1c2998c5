"""Paths of this machine are refused where Spark runs on others; names of this machine are no other one."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.project.cluster import fixed_part, is_elsewhere, is_local

from .conftest import Load, Reject

_PROJECT = """\
name: p
{spark}
targets:
  main: {target}
entities:
  Document:
    source: {{type: files, path: {path}}}
    target: main
"""
_AWAY = "spark: {master: 'spark://head:7077'}"
_SHARED = "spark: {master: 'spark://head:7077', shared: true}"
_LANCE = "{type: lance, uri: s3://bucket/index}"
_LOCAL = "{type: lance, uri: .instep/index}"


@pytest.mark.parametrize(
    ("master", "remote", "elsewhere"),
    [
        ("local[*]", None, False),
        ("local-cluster[2,1,1024]", None, False),
        ("spark://127.0.0.1:7077", None, False),
        ("spark://localhost:7077,head:7077", None, True),
        ("spark://head:7077", None, True),
        ("yarn", None, True),
        ("k8s://https://api:6443", None, True),
        ("local[*]", "sc://localhost:15002/;token=x", False),
        ("local[*]", "sc://[::1]:15002", False),
        ("local[*]", "sc://spark.example:15002", True),
    ],
)
def test_other_machines_are_known_by_their_address(master: str, remote: str | None, elsewhere: bool) -> None:
    assert is_elsewhere(master, remote) is elsewhere


def test_a_source_that_executors_cannot_see_is_refused_with_its_line(reject: Reject) -> None:
    message = str(reject(_PROJECT.format(spark=_AWAY, target=_LANCE, path="docs")))
    assert "docs" in message
    assert "spark://head:7077" in message
    assert "shared: true" in message
    assert ":7" in message


def test_an_index_that_executors_cannot_see_is_refused(reject: Reject) -> None:
    message = str(reject(_PROJECT.format(spark=_AWAY, target=_LOCAL, path="s3://bucket/docs")))
    assert ".instep/index" in message


@pytest.mark.parametrize(
    ("spark", "target", "path"),
    [(_AWAY, _LANCE, "s3://bucket/docs"), (_SHARED, _LOCAL, "docs"), ("engine: inline\n" + _AWAY, _LOCAL, "docs")],
)
def test_what_all_hosts_reach_is_accepted(load: Load, spark: str, target: str, path: str) -> None:
    load(_PROJECT.format(spark=spark, target=target, path=path))


def test_places_of_tasks_are_absolute_and_told_apart(load: Load) -> None:
    project = load(_PROJECT.format(spark=_SHARED, target=_LOCAL, path="'docs/*/new'"))
    root = Path(project.root)
    assert project.places_of_tasks == {str(root / "docs"): False, str(root / ".instep/index"): True}


def test_patterns_are_cut_where_they_begin() -> None:
    assert fixed_part("/a/b*/c") == "/a"
    assert fixed_part("/a/b") == "/a/b"
    assert fixed_part("/*") == "/"


def test_a_file_url_is_a_path() -> None:
    assert is_local("file:///a")
    assert is_local("a/b")
    assert not is_local("s3://a/b")
