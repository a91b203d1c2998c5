"""Searching several entities: their scores are of different kinds, so only ranks are compared."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import instep
from instep.answers.search import Hit
from instep.errors import Transient, UserError
from instep.project import Project
from instep.targets import document_target
from instep.targets.lance import LanceTarget
from instep.targets.ranking import alternating

QUERY = "reset password account"


def hit(entity: str, chunk: int, score: float) -> document_target.Hit:
    return document_target.Hit(entity, score, f"doc_{chunk}", f"chunk_{chunk}", 0, f"file:///{chunk}", None, "text")


SCORES = st.lists(st.floats(-1e9, 1e9), max_size=8).map(lambda scores: sorted(scores, reverse=True))


@given(st.lists(SCORES, max_size=4))
def test_ranks_decide_and_each_entity_keeps_its_order(scores: list[list[float]]) -> None:
    answers = [
        [hit(f"E{entity}", chunk, score) for chunk, score in enumerate(each)] for entity, each in enumerate(scores)
    ]
    found = alternating(answers)
    for entity, answer in enumerate(answers):
        mine = [each.chunk_id for each in found if each.entity == f"E{entity}"]
        assert mine == [each.chunk_id for each in answer]
    by_rank = itertools.chain.from_iterable(itertools.zip_longest(*answers))
    assert [(each.entity, each.chunk_id) for each in found] == [(e.entity, e.chunk_id) for e in by_rank if e]
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)


def test_one_answer_keeps_its_scores() -> None:
    answer = [hit("E", 1, 7.5), hit("E", 2, 0.25)]
    assert alternating([answer]) == answer


def declared(root: Path, dimensions: int = 384, **more: Any) -> instep.Instep:
    """`Few` has one document about it; in `Many` the words are everywhere, and mean nothing."""
    few, many = root / "few", root / "many"
    if not few.exists():
        few.mkdir()
        many.mkdir()
        (few / "answer.md").write_text("# Reset\n\nHow to reset the password of your account: choose reset password.\n")
        for number in range(12):
            (few / f"n{number}.md").write_text(f"# Hint {number}\n\nreset password account hints {number}\n")
            (many / f"n{number}.md").write_text(f"# Recipe {number}\n\nUse your oven. account for altitude {number}\n")
    entities = {
        "Few": {"source": {"type": "files", "path": "few"}, "target": "main"},
        "Many": {
            "source": {"type": "files", "path": "many"},
            "target": "main",
            "embed": {"type": "hashing", "dimensions": dimensions},
        },
    }
    targets = {"main": {"type": "lance", "uri": "index"}, "other": {"type": "lance", "uri": "other"}}
    project = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {**entities, **more}}
    return instep.Instep(Project.model_validate(project))


def entities_of(found: list[Hit]) -> list[str]:
    return [each.entity for each in found]


def test_hits_of_words_do_not_crowd_out_those_of_ranks(tmp_path: Path) -> None:
    """An entity that is searched by its words alone has scores of BM25, the other one sums of ranks."""
    declared(tmp_path).run()
    project = declared(tmp_path, dimensions=256)  # Many was built with another embedder: it has no vectors to compare.
    alone = [each.chunk_id for each in project.search(QUERY, entities=["Few"], limit=6)]
    found = project.search(QUERY, limit=6)
    assert entities_of(found) == ["Few", "Many"] * 3
    assert [each.chunk_id for each in found if each.entity == "Few"] == alone[:3]


@pytest.mark.parametrize("mode", ["text", "vector", "hybrid"])
def test_the_order_is_that_of_the_entities_asked_for(tmp_path: Path, mode: Any) -> None:
    project = declared(tmp_path)
    project.run()
    assert entities_of(project.search(QUERY, mode=mode, limit=4)) == ["Few", "Many"] * 2
    assert set(entities_of(project.search(QUERY, mode=mode, limit=4, entities=["Many"]))) == {"Many"}
    again = [project.search(QUERY, mode=mode, limit=9) for _ in range(2)]
    assert again[0] == again[1]


def test_search_leaves_out_entities_not_built_yet(tmp_path: Path) -> None:
    project = declared(tmp_path)
    project.run(["Many"])
    assert entities_of(project.search(QUERY, limit=3)) == ["Many"] * 3
    with pytest.raises(UserError, match="nothing is indexed yet"):
        project.search(QUERY, entities=["Few"])
    project.run()
    assert entities_of(project.search(QUERY, limit=3)) == ["Few", "Many", "Few"], "no more than were asked for"


def test_one_target_is_asked_while_another_one_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "few").mkdir()
    (tmp_path / "few" / "a.md").write_text("reset the password\n")
    files = {"type": "files", "path": "few"}
    entities = {
        "Both": {"source": files, "targets": ["other", "main"]},
        "Here": {"source": files, "target": "main"},
        "There": {"source": files, "target": "other"},
    }
    targets = {name: {"type": "lance", "uri": name} for name in ("main", "other")}
    declaration = {"name": "p", "root": tmp_path, "engine": "inline", "targets": targets, "entities": entities}
    project = instep.Instep(Project.model_validate(declaration))
    project.run()
    asked: list[str] = []
    real = LanceTarget.search

    def search(self: LanceTarget, *args: Any, **kwargs: Any) -> list[document_target.Hit]:
        asked.append(self.uri.rpartition("/")[2])
        if asked[-1] == "other":
            raise Transient("other is away")
        return real(self, *args, **kwargs)

    monkeypatch.setattr(LanceTarget, "search", search)
    assert set(entities_of(project.search(QUERY, target="main"))) == {"Both", "Here"}
    assert asked == ["main", "main"]
    for wanted in ({"target": "other"}, {"entities": ["There"]}, {"entities": ["Both"]}):
        with pytest.raises(Transient, match="other is away"):
            project.search(QUERY, **wanted)
    with pytest.raises(UserError, match="no documents of these entities are in a target 'main'"):
        project.search(QUERY, entities=["There"], target="main")


def test_a_document_of_two_entities_is_found_in_both(tmp_path: Path) -> None:
    same = {"source": {"type": "files", "path": "few"}, "target": "other"}
    project = declared(tmp_path, Same=same)
    project.run()
    found = project.search(QUERY, entities=["Few", "Same"], limit=2)
    assert entities_of(found) == ["Few", "Same"]
    assert found[0].chunk_id == found[1].chunk_id


@pytest.mark.parametrize("odd", ["\0", "\udc80"])
def test_characters_that_are_no_text_are_ignored_in_a_query(tmp_path: Path, odd: str) -> None:
    """A terminal or a browser may send anything."""
    project = declared(tmp_path)
    project.run()
    assert entities_of(project.search(f"{odd} reset password", entities=["Few"]))
