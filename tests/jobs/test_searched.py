"""What an entity says is searched by words, from its declaration to its hits, and what is built anew for it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.fingerprint import WORDS
from instep.errors import UserError
from instep.project import Project

NOTES = {
    "haus.md": "---\nsummary: Verwaltung\ntags: [dach, ziegel]\n---\n# Häuser\n\nDie Gebäude der Straßen.\n",
    "baum.md": "---\nsummary: Wald und Wiese\n---\n# Bäume\n\nEin Haus steht im Wald, und der Wald ist still.\n",
}


def opened(tmp_path: Path, **search: Any) -> instep.Instep:
    (tmp_path / "notes").mkdir(exist_ok=True)
    for name, text in NOTES.items():
        (tmp_path / "notes" / name).write_text(text)
    note = {
        "source": {"type": "files", "path": "notes"},
        "target": "main",
        "columns": {"summary": "string", "tags": "string[]"},
        "search": search,
    }
    declaration = {
        "name": "p",
        "root": tmp_path,
        "engine": "inline",
        "targets": {"main": {"type": "lance", "uri": "index"}},
        "entities": {"Note": note},
    }
    return instep.Instep(Project.model_validate(declaration))


def found(project: instep.Instep, query: str, mode: Any = "text") -> list[str | None]:
    return [each.title for each in project.search(query, mode=mode)]


def test_stems_of_the_language_and_declared_columns_are_found(tmp_path: Path) -> None:
    project = opened(tmp_path, language="german", boosts={"summary": 3, "tags": 1})
    project.run()
    assert found(project, "Hauses") == ["Häuser", "Bäume"], "a word of a title counts twice"
    assert found(project, "ziegeln verwaltungen") == ["Häuser"]
    assert found(project, "Baum") == ["Bäume"]
    hit = project.search("Wäldern Wiesen", mode="text")[0]
    assert hit.title == "Bäume"
    assert [hit.snippet[start:end] for start, end in hit.marks] == ["Wald", "Wald"]
    assert hit.score_kind == "bm25"
    assert {each.score_kind for each in project.search("Haus", mode="vector")} == {"cosine"}
    assert {each.score_kind for each in project.search("Haus", mode="hybrid")} == {"rrf"}


def test_another_language_is_another_index_and_the_old_one_is_asked_in_its_own(tmp_path: Path) -> None:
    opened(tmp_path).run()
    german = opened(tmp_path, language="german")
    (plan,) = german.plan()
    assert "words changed" in str(plan.model_dump())
    assert found(german, "Straße") == [], "it has English stems"
    assert found(german, "Straßen") == ["Häuser"]
    german.run()
    assert found(german, "Straße") == ["Häuser"]


def test_a_column_that_is_not_searched_is_not_found(tmp_path: Path) -> None:
    project = opened(tmp_path, boosts={"title": 0})
    (tmp_path / "notes" / "eiche.md").write_text("---\ntitle: Eiche\n---\nLaub.\n")
    project.run()
    assert found(project, "Eiche") == []
    assert found(project, "Laub") == ["Eiche"]
    assert found(project, "Verwaltung") == []
    assert found(project, "Gebäude") == ["Häuser"]


def test_a_searched_column_that_changes_alone_is_found_as_it_is(tmp_path: Path) -> None:
    project = opened(tmp_path, boosts={"summary": 1})
    project.run()
    text = NOTES["haus.md"].replace("Verwaltung", "Umbau")
    (tmp_path / "notes" / "haus.md").write_text(text)
    project.run()
    assert found(project, "Umbau") == ["Häuser"]
    assert found(project, "Verwaltung") == []


def test_an_index_of_an_earlier_version_is_searched_by_its_vectors(tmp_path: Path) -> None:
    project = opened(tmp_path)
    project.run()
    container = Container(project.project)
    with closing(container.ledger()) as ledger:
        (known,) = ledger.checkpoints.of_entity("Note")
        made = {name: value for name, value in known.fingerprint.items() if name != WORDS}
        ledger.checkpoints.describe(known, made)
    for ask in (lambda: project.search("Haus", mode="text"), lambda: project.facets("Haus", ["summary"])):
        with pytest.raises(UserError, match="earlier version") as caught:
            ask()
        assert "instep run" in str(caught.value)
    assert len(found(project, "Haus", "hybrid")) == 2
    project.run()
    assert found(project, "Haus") == ["Bäume"]


@pytest.mark.parametrize(
    ("search", "said"),
    [
        ({"language": "klingon"}, "not one of the allowed values"),
        ({"boosts": {"sumary": 2}}, "neither title nor text"),
        ({"boosts": {"title": 11}}, "10"),
        ({"boosts": {"title": 0, "text": 0}}, "leave no column to search"),
    ],
)
def test_what_cannot_be_searched_is_refused(tmp_path: Path, search: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        opened(tmp_path, **search)
