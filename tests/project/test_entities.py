"""What entities of one project have to do with each other, and with its targets and engine."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from instep.project import Project

from .conftest import Reject
from .declared import said

TABLE: dict[str, Any] = {"source": {"type": "spark", "path": "x"}, "key": "id"}
DOCUMENTS: dict[str, Any] = {"source": {"type": "files", "path": "docs"}}
CLICKHOUSE = {"type": "clickhouse", "uri": "graph"}
POSTGRES = {"type": "postgres", "uri": "postgresql://h/db"}
QDRANT = {"type": "qdrant", "uri": "qdrant"}
MILVUS = {"type": "milvus", "uri": "milvus.db"}
LANCE = {"type": "lance", "uri": "index"}
OPENSEARCH = {"type": "opensearch", "uri": "http://h:9200"}


def project(target: dict[str, str] = LANCE, **entities: dict[str, Any]) -> Project:
    return Project.model_validate({"name": "p", "targets": {"only": target}, "entities": entities})


@pytest.mark.parametrize("target", [CLICKHOUSE, POSTGRES, LANCE])
def test_targets_of_tables(target: dict[str, str]) -> None:
    assert project(target, User=TABLE).target_of("User") == "only"


@pytest.mark.parametrize("target", [LANCE, POSTGRES, QDRANT, MILVUS, OPENSEARCH])
def test_targets_of_documents(target: dict[str, str]) -> None:
    assert project(target, Notes=DOCUMENTS).target_of("Notes") == "only"


@pytest.mark.parametrize(
    ("target", "entity", "says"),
    [
        (
            CLICKHOUSE,
            DOCUMENTS,
            "documents need a target of the type lance, postgres, qdrant, milvus, opensearch or python, and this",
        ),
        (
            QDRANT,
            TABLE,
            "tables need a target of the type lance, clickhouse, postgres, opensearch or python, and this one is of ",
        ),
        (MILVUS, TABLE, "and this one is of the type milvus"),
    ],
)
def test_entities_that_a_target_does_not_take(target: dict[str, str], entity: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        project(target, Notes=entity)


@pytest.mark.parametrize("target", [QDRANT, MILVUS])
def test_spark_cannot_reach_a_target_in_this_process(target: dict[str, str]) -> None:
    declared = {"name": "p", "targets": {"t": target}, "entities": {"Notes": DOCUMENTS}}
    with pytest.raises(ValidationError, match="`engine` is spark, and the target t is one in this process"):
        Project.model_validate({**declared, "engine": "spark"})
    with pytest.raises(ValidationError, match="a transform needs Spark, and the target t is one in this process"):
        Project.model_validate({**declared, "entities": {"Notes": {**DOCUMENTS, "transform": "a:b"}}})
    server = {**target, "uri": "http://host:1"}
    assert Project.model_validate({**declared, "engine": "spark", "targets": {"t": server}}).engine == "spark"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("target: index", "target: graph", "24 entities.Notes.target: documents need a target of the type lance, "),
        ("target: index", "target: graph", "found 'graph'; allowed: index"),
        ("    target: index\n", "", "must name a target, because the project has several; allowed: index"),
        ("target: graph", "target: grph", "no such target; found 'grph'; allowed: graph, index (did you mean graph?)"),
        ("label: Person}", "label: Commit}", "21 entities.Author.node.label: the entity Commit makes the nodes of"),
        ("label: Person}", "label: commit}", "21 entities.Author.node.label: the entity Commit makes the nodes of"),
        ("label: Person,", "label: Persn,", "found 'Persn'; allowed: Commit, Person (did you mean Person?)"),
        ("label: Person,", "label: Notes,", "edges[0].from.label: no entity makes nodes of this label"),
        ("  Author:", "  Author__x:", "17 entities.Author__x: an entity's name has no two underscores"),
        ("  Author:", "  Author_:", "17 entities.Author_: an entity's name has no two underscores"),
        ("  Author:", f"  {'A' * 64}:", "a table's name has at most 63 letters"),
        ("  Author:", "  commit:", "17 entities.commit: differs from Commit in case only"),
        ("  Author:", "  COMMIT:", "17 entities.COMMIT: differs from Commit in case only"),
        ("name: git", "name: git\nengine: inline", "8 entities.Commit.source: a table needs Spark, and `engine` is"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(reject: Reject, old: str, new: str, says: str) -> None:
    assert says in said(reject, old, new)


def test_a_plain_table_is_a_node_called_like_its_entity() -> None:
    follows = {
        "kind": "FOLLOWS",
        "from": {"label": "User", "columns": "by"},
        "to": {"label": "User", "columns": "whom"},
    }
    project(User=TABLE, Follow={**TABLE, "edges": [follows]})
    with pytest.raises(ValidationError, match="the entity User makes the nodes of this label already"):
        project(User=TABLE, Person={**TABLE, "node": {"label": "User"}})
    with pytest.raises(ValidationError, match="the entity Person makes the nodes of this label already"):
        project(Person={**TABLE, "node": {"label": "User"}}, User=TABLE)
    # A join table has no node that an edge could lead to.
    with pytest.raises(ValidationError, match="no entity makes nodes of this label"):
        project(User=TABLE, Follow={**TABLE, "edges": [{**follows, "to": {"label": "Follow", "columns": "x"}}]})


@pytest.mark.parametrize("name", ["My__Notes", "Notes_"])
def test_no_entity_is_called_like_an_index_of_another(name: str) -> None:
    assert list(project(**{"n" * 100: DOCUMENTS}).entities) == ["n" * 100]
    with pytest.raises(ValidationError, match="no two underscores in a row"):
        project(**{name: DOCUMENTS})


def several(targets: list[str], **places: dict[str, str]) -> Project:
    notes, more = {**DOCUMENTS, "targets": targets}, {**DOCUMENTS, "target": "a", "depends_on": ["Notes"]}
    return Project.model_validate({"name": "p", "targets": places, "entities": {"Notes": notes, "More": more}})


def test_an_entity_with_several_targets_becomes_one_for_each() -> None:
    found = several(["b", "a"], a=LANCE, b=POSTGRES)
    assert list(found.entities) == ["Notes__b", "Notes__a", "More"]
    assert [found.target_of(name) for name in found.entities] == ["b", "a", "a"]
    assert found.entities["More"].depends_on == ("Notes__b", "Notes__a")
    assert found.named("Notes") == ("Notes__b", "Notes__a")
    assert (found.named("Notes__a"), found.named("Note")) == (("Notes__a",), ())
    assert found.own_names == ("Notes", "More")


@pytest.mark.parametrize(
    ("targets", "says"),
    [
        ([], "must not be empty|at least 1 item"),
        (["a", "c"], "no such target"),
        (["a", "a"], "is named twice"),
        (["a", "t"], "documents need a target of the type lance"),
        (["a", "not-plain"], "its name must be letters, digits and underscores"),
    ],
)
def test_targets_that_cannot_be_several(targets: list[str], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        several(targets, a=LANCE, t=CLICKHOUSE, **{"not-plain": POSTGRES})


def test_target_and_targets_are_not_both_there() -> None:
    with pytest.raises(ValidationError, match="cannot be set together with `target`"):
        project(Notes={**DOCUMENTS, "target": "only", "targets": ["only"]})


GLOBAL = {**TABLE}
NAMESPACED = {**TABLE, "scope": "path"}


@pytest.mark.parametrize("upstream", [GLOBAL, NAMESPACED, DOCUMENTS])
def test_a_namespaced_entity_depends_on_namespaced_and_global_ones(upstream: dict[str, Any]) -> None:
    assert project(Up=upstream, Down={**NAMESPACED, "depends_on": ["Up"]}).entities["Down"].depends_on == ("Up",)


@pytest.mark.parametrize("downstream", [GLOBAL, DOCUMENTS])
def test_a_global_entity_depends_on_global_ones_only(downstream: dict[str, Any]) -> None:
    assert project(Up=GLOBAL, Down={**downstream, "depends_on": ["Up"]}).entities["Down"].depends_on == ("Up",)
    with pytest.raises(ValidationError, match="a global entity cannot wait for one that is indexed by namespaces"):
        project(Up=NAMESPACED, Down={**downstream, "depends_on": ["Up"]})


def test_a_scope_needs_no_namespaces() -> None:
    assert project(Down=NAMESPACED).scopes == ()
