"""`depends_on`: names that exist, and no circles, each said with the line it stands on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.project import Project

from .conftest import Load, Reject

HEAD = """\
name: my-project
targets:
  index: {type: lance, uri: .instep/index}
entities:
"""


def entities(**depends_on: str) -> str:
    """Three lines each, from line 5 on: name, source, depends_on."""
    return HEAD + "".join(
        f"  {name}:\n    source: {{type: files, path: docs}}\n    depends_on: [{others}]\n"
        for name, others in depends_on.items()
    )


def test_dependencies_are_declared_by_name(load: Load) -> None:
    project = load(entities(Page="Site, Author", Site="", Author="Site"))
    assert project.entities["Page"].depends_on == ("Site", "Author")
    assert project.entities["Site"].depends_on == ()


def test_a_name_that_is_not_declared_is_refused_with_those_that_are(reject: Reject) -> None:
    error = reject(entities(Page="Site, Autor", Site="", Author=""))
    assert [(each.line, each.path) for each in error.problems] == [(7, "entities.Page.depends_on[1]")]
    said = "no such entity; found 'Autor'; allowed: Page, Site, Author (did you mean Author?)"
    assert said in str(error.problems[0])


@pytest.mark.parametrize(
    ("declared", "line", "path", "circle"),
    [
        ({"A": "A"}, 7, "entities.A.depends_on[0]", "A → A"),
        ({"A": "B", "B": "A"}, 7, "entities.A.depends_on[0]", "A → B → A"),
        ({"Leaf": "", "A": "Leaf, B", "B": "C", "C": "A"}, 10, "entities.A.depends_on[1]", "A → B → C → A"),
        ({"Top": "A", "A": "B", "B": "A"}, 10, "entities.A.depends_on[0]", "A → B → A"),
    ],
)
def test_a_circle_is_named_with_its_line(
    reject: Reject, declared: dict[str, str], line: int, path: str, circle: str
) -> None:
    (problem,) = reject(entities(**declared)).problems
    assert (problem.line, problem.path) == (line, path)
    assert f"entities cannot wait for each other: {circle}" in problem.message


def test_a_global_entity_cannot_depend_on_namespaces(reject: Reject) -> None:
    table = "    source: {type: spark, path: rows}\n    key: id\n"
    declared = f"  All:\n{table}    depends_on: [One]\n  One:\n{table}    scope: path\n    depends_on: []\n"
    (problem,) = reject(HEAD + declared).problems
    assert (problem.line, problem.path) == (8, "entities.All.depends_on[0]")
    assert "cannot wait for one that is indexed by namespaces: not all namespaces are known" in problem.message


def test_one_name_is_written_as_a_list_too(reject: Reject) -> None:
    (problem,) = reject(entities(Page="").replace("[]", "Site")).problems
    assert (problem.line, problem.message) == (7, "must be a list; found 'Site'")


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_any_graph_is_taken_unless_it_leads_back(edges: list[tuple[int, int]]) -> None:
    source = {"type": "files", "path": "docs"}
    declared = {
        f"E{each}": {"source": source, "depends_on": [f"E{to}" for of, to in edges if of == each]} for each in range(6)
    }
    reached = {each: {to for of, to in edges if of == each} for each in range(6)}
    for _ in range(6):
        reached = {each: to | {far for near in to for far in reached[near]} for each, to in reached.items()}
    leads_back = any(each in to for each, to in reached.items())
    told = {"name": "p", "targets": {"t": {"type": "lance", "uri": "x"}}, "entities": declared}
    if leads_back:
        with pytest.raises(ValueError, match="cannot wait for each other"):
            Project.model_validate(told)
        return
    project = Project.model_validate(told)
    assert {name: list(entity.depends_on) for name, entity in project.entities.items()} == {
        name: entity["depends_on"] for name, entity in declared.items()
    }
