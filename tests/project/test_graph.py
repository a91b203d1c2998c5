"""What is declared, as the domain's values: tables can be made of it."""

from __future__ import annotations

from instep.domain.columns import INT64, STRING, Column
from instep.domain.graph import GraphEntity, graph_tables, node_keys
from instep.domain.rows import RowColumns
from instep.project import Project
from instep.project.tables import edges_of, node_of, row_columns

from .conftest import Load
from .declared import TABLES, changed, table

COLUMNS = {
    "Commit": {"id": INT64, "path": STRING, "sha": STRING, "message": STRING, "author": STRING},
    "Author": {"email": STRING, "name": STRING},
}


def graph_of(project: Project, name: str) -> GraphEntity:
    entity, columns = table(project, name), COLUMNS[name]
    return GraphEntity(
        name=name,
        columns=tuple(Column(column, kind) for column, kind in columns.items()),
        key=entity.key,
        node=node_of(name, entity, list(columns)),
        edges=edges_of(entity),
        scope=entity.scope,
    )


def tables_of(project: Project, name: str) -> dict[str, list[str]]:
    graphs = [graph_of(project, each) for each in COLUMNS]
    own = next(each for each in graphs if each.name == name)
    return {each.kind: [column.name for column in each.columns] for each in graph_tables(own, node_keys(graphs))}


def test_a_project_becomes_tables_of_nodes_and_edges(load: Load) -> None:
    project = load(TABLES)
    assert tables_of(project, "Commit") == {
        "": ["id", "path", "sha", "message"],
        "AUTHORED": ["id", "path", "from_email", "to_id"],
    }
    # Without a list of properties, a node has all columns.
    assert tables_of(project, "Author") == {"": ["email", "name"]}


def test_without_node_and_edges_it_is_a_plain_table(load: Load) -> None:
    text = changed("    node: {label: Person}\n", "", TABLES).replace("label: Person,", "label: Author,")
    project = load(text)
    node = node_of("Author", table(project, "Author"), ["email", "name"])
    assert node is not None
    assert (node.label, node.properties) == ("Author", {"email": "email", "name": "name"})
    assert tables_of(project, "Author") == {"": ["email", "name"]}
    assert tables_of(project, "Commit")["AUTHORED"] == ["id", "path", "from_email", "to_id"]


def test_without_a_node_a_join_table_has_edges_only(load: Load) -> None:
    text = changed("    node: {label: Commit, properties: [sha, message]}\n", "", TABLES)
    text = changed("to: {label: Commit}", "to: {label: Person, columns: message}", text)
    project = load(text)
    assert node_of("Commit", table(project, "Commit"), ["id"]) is None
    assert tables_of(project, "Commit") == {"": ["id", "path"], "AUTHORED": ["id", "path", "from_email", "to_email"]}


def test_no_properties_are_not_all_properties(load: Load) -> None:
    project = load(changed("[sha, message]", "[]"))
    assert tables_of(project, "Commit")[""] == ["id", "path"]


def test_columns_that_name_the_kind_of_a_row(load: Load) -> None:
    project = load(changed("target: graph", "deleted: gone\n    order: [path, id]\n    target: graph"))
    assert row_columns(table(project, "Commit")) == RowColumns(("id",), "path", "updated_at", "gone", ("path", "id"))
    assert row_columns(table(project, "Author")) == RowColumns(("email",))
