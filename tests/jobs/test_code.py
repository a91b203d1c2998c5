"""A folder of code and CSV, from the project file to hits that know where in a file they are."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.answers.doctor import Health
from instep.errors import UserError
from instep.pipeline.documents import syntax
from instep.project import Project

FILES = {
    "tide.py": "import moon\n\n\nclass Harbour:\n    def enter(self, ship):\n"
    "        return 'the ship is too deep'\n\n\n    def leave(self, ship):\n        return 'the ship is away'\n",
    "tide.js": "class Pier {\n  moor(boat) {\n    return 'moored boat';\n  }\n}\n\nconst ebb = (moon) => {\n"
    "  return 'falling water';\n};\n",
    "tide.go": 'package tide\n\nfunc (h *Harbour) Sail(ship string) error {\n\treturn errors.New("no wind")\n}\n',
    "ports.csv": "port,level\n" + "".join(f'Port{at},"{at / 10}\nmetres"\n' for at in range(100)),
}
INCLUDE = ["**/*.py", "**/*.js", "**/*.go", "**/*.csv"]
COLUMNS = {"line": {"type": "int", "from": "chunk:line"}, "inside": {"type": "string[]", "from": "chunk:headings"}}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    for name, text in FILES.items():
        (tmp_path / "src" / name).write_text(text)
    return tmp_path


def opened(root: Path, *, engine: str = "inline", to: str = "index", **chunk: Any) -> instep.Instep:
    entity = {
        "source": {"type": "files", "path": "src", "include": INCLUDE},
        "target": "index",
        "chunk": {"size": 90, "code": "syntax", "context": "headings", **chunk},
        "columns": COLUMNS,
    }
    targets = {"index": {"type": "lance", "uri": to}}
    declared = {"name": "p", "root": root, "state": to + ".state", "engine": engine, "targets": targets}
    return instep.Instep(Project.model_validate({**declared, "entities": {"Code": entity}}))


def hit(project: instep.Instep, query: str) -> Any:
    return project.search(query, mode="text", limit=1)[0]


def rows(project: instep.Instep) -> set[tuple[str, str]]:
    found = {(each.source_uri, each.text) for each in project.search("port ship boat moon package water", limit=100)}
    assert len(found) > 10
    return found


def test_hits_say_in_what_they_are_and_on_which_line(root: Path) -> None:
    project = opened(root)
    project.run()
    found = hit(project, "ship away")
    assert found.text.startswith("def leave")
    assert found.columns == {"line": 9, "inside": ["Harbour", "leave"]}
    assert hit(project, "falling").columns == {"line": 7, "inside": ["ebb"]}
    assert hit(project, "sail wind").source_uri.endswith("tide.go")


def test_rows_of_csv_are_found_by_their_header_and_shown_with_it(root: Path) -> None:
    project = opened(root)
    project.run()
    found = hit(project, "port57 level")
    assert found.text.startswith("port,level\n")
    assert 'Port57,"5.7\nmetres"' in found.text
    assert found.columns["inside"] is None


def test_a_row_put_in_front_embeds_what_is_around_it_alone(root: Path) -> None:
    project = opened(root)
    (first,) = project.run()
    old = rows(project)
    table = root / "src" / "ports.csv"
    table.write_text(FILES["ports.csv"].replace("port,level\n", 'port,level\nNew,"0.0\nmetres"\n'))
    project.run()
    assert len(rows(project) & old) >= first.counts.rows_written // 2


def test_code_is_text_where_nothing_else_is_declared(root: Path) -> None:
    project = opened(root, code="text")
    project.run()
    assert hit(project, "falling").columns["inside"] is None
    (plan,) = opened(root).plan()
    assert "chunker" in " ".join(plan.why)


def test_a_check_says_what_has_to_be_installed(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(syntax, "version", missing)
    with pytest.raises(UserError, match="needs the package tree-sitter") as caught:
        opened(root).plan()
    assert caught.value.hint == "pip install 'instep[code]'"
    (found,) = [each for each in opened(root).check() if each.subject == "chunks of Code"]
    assert (found.health, found.hint) == (Health.PROBLEM, "pip install 'instep[code]'")
    assert "needs the package tree-sitter" in found.detail


@pytest.mark.proof
@pytest.mark.spark
def test_on_spark_chunks_are_the_same(root: Path) -> None:
    here, there = opened(root), opened(root, engine="spark", to="other")
    here.run()
    there.run()
    assert rows(here) == rows(there)
