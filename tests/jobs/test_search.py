"""Searching several entities: their scores are of different kinds, so only ranks are compared."""

from __future__ import annotations

import itertools
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import instep
from instep.answers import looks
from instep.answers.readers import as_principals
from instep.answers.search import Hit
from instep.domain.filters import FilterError
from instep.errors import Transient, UserError
from instep.ledger.events import Events
from instep.project import Project
from instep.targets import document_target
from instep.targets.lance import LanceTarget
from instep.targets.ranking import alternating

QUERY = "reset password account"


def hit(entity: str, chunk: int, score: float) -> document_target.Hit:
    return document_target.Hit(
        entity, score, f"doc_{chunk}", f"chunk_{chunk}", 0, f"file:///{chunk}", None, "text", "bm25"
    )


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


@pytest.fixture
def tickets(tmp_path: Path) -> instep.Instep:
    """Documents of two teams, each of several chunks."""
    (tmp_path / "tickets").mkdir()
    for number in range(6):
        head = f"---\nteam: {'ops' if number % 2 else 'dev'}\nyear: {2019 + number}\n---\n"
        text = f"# Printer {number}\n\n" + f"The printer of floor {number} is on fire.\n\n" * 60
        (tmp_path / "tickets" / f"{number}.md").write_text(head + text)
    ticket = {
        "source": {"type": "files", "path": "tickets"},
        "target": "main",
        "columns": {"team": "string", "year": "int"},
    }
    plain = {"source": {"type": "files", "path": "tickets"}, "target": "main"}
    declaration = {
        "name": "p",
        "root": tmp_path,
        "engine": "inline",
        "targets": {"main": {"type": "lance", "uri": "index"}},
        "entities": {"Ticket": ticket, "Plain": plain},
    }
    project = instep.Instep(Project.model_validate(declaration))
    project.run()
    return project


def test_a_search_is_narrowed_by_a_filter(tickets: instep.Instep) -> None:
    def titles(where: str, **more: Any) -> set[str | None]:
        return {each.title for each in tickets.search("printer", limit=100, where=where, entities=["Ticket"], **more)}

    for mode in ("text", "vector", "hybrid"):
        assert titles("team = 'ops' AND year >= 2022", mode=mode) == {"Printer 3", "Printer 5"}
    assert titles("title LIKE 'Printer 1%' OR year IN (2019)") == {"Printer 0", "Printer 1"}
    assert titles("modified > '2020-01-01'") == {f"Printer {number}" for number in range(6)}


def test_a_hit_has_the_values_of_its_columns(tickets: instep.Instep) -> None:
    found = {each.title: each.columns for each in tickets.search("printer", limit=100, entities=["Ticket"])}
    assert found == {
        f"Printer {number}": {"team": "ops" if number % 2 else "dev", "year": 2019 + number} for number in range(6)
    }
    assert {len(each.columns) for each in tickets.search("printer", entities=["Plain"])} == {0}


def test_a_hit_has_no_column_that_is_not_served_yet(tickets: instep.Instep) -> None:
    declared = tickets.project.model_dump(by_alias=True, exclude_unset=True)
    declared["entities"]["Ticket"]["columns"] = {"team": "string[]", "extra": "string", "year": "int"}
    changed = instep.Instep(Project.model_validate(declared | {"root": tickets.project.root}))
    (found,) = changed.search("printer", where="year = 2021", limit=1, entities=["Ticket"])
    assert found.columns == {"year": 2021}


def test_each_entity_of_a_search_has_the_columns_of_its_filter(tickets: instep.Instep) -> None:
    with pytest.raises(FilterError, match="Plain: there is no column 'team'") as caught:
        tickets.search("printer", where="title = 'x' OR team = 'ops'")
    assert caught.value.position == 16
    assert "Name one entity" in str(caught.value)
    assert tickets.search("printer", where="title = 'Printer 1'")
    with pytest.raises(FilterError, match="did you mean team") as caught:
        tickets.search("printer", where="tean = 'ops'", entities=["Ticket"])
    assert "Name one entity" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "where"),
    [({"team": "string", "extra": "string"}, "extra = 'x'"), ({"team": "string[]"}, "NOT team CONTAINS 'ops'")],
    ids=["new", "another type"],
)
def test_a_filter_by_a_column_that_is_not_served_yet_is_refused(
    tickets: instep.Instep, columns: dict[str, str], where: str
) -> None:
    declared = tickets.project.model_dump(by_alias=True, exclude_unset=True)
    declared["entities"]["Ticket"]["columns"] = columns
    changed = instep.Instep(Project.model_validate(declared | {"root": tickets.project.root}))
    with pytest.raises(UserError, match="is not in the served index yet") as caught:
        changed.search("printer", where=f"title = 'x' OR {where}", entities=["Ticket"])
    assert "instep run" in str(caught.value)
    if "extra" in columns:
        assert changed.search("printer", where="team = 'ops'", entities=["Ticket"]), "the others are as they were"


def test_a_filter_by_a_column_of_another_origin_finds_what_is_served(tickets: instep.Instep) -> None:
    declared = tickets.project.model_dump(by_alias=True, exclude_unset=True)
    team = declared["entities"]["Ticket"]["columns"]["team"]
    kind = team if isinstance(team, str) else team["type"]
    declared["entities"]["Ticket"]["columns"]["team"] = {"type": kind, "on_wrong": None}
    changed = instep.Instep(Project.model_validate(declared | {"root": tickets.project.root}))
    (plan,) = changed.plan(["Ticket"])
    assert "column team changed" in " ".join(plan.why)
    one, other = (each.search("printer", where="team = 'ops'", entities=["Ticket"]) for each in (changed, tickets))
    assert one == other != []


def test_a_filter_finds_what_is_served_before_the_job_that_built_it_has_ended(
    tickets: instep.Instep, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    promote = LanceTarget.promote

    def promoted(target: LanceTarget, alias: str, physical: str | None, epoch: int) -> None:
        promote(target, alias, physical, epoch)
        found.append(len(tickets.search("printer", where="team = 'ops'", entities=["Ticket"], group=True)))

    monkeypatch.setattr(LanceTarget, "promote", promoted)
    tickets.run(entities=["Ticket"], full_refresh=True)
    assert found
    assert set(found) == {3}


def test_of_each_document_only_the_best_chunk(tickets: instep.Instep) -> None:
    every = tickets.search("printer", limit=200, entities=["Ticket"])
    assert len(every) > 12, "documents of several chunks"
    first = list({each.document_id: each for each in reversed(every)}.values())[::-1]
    found = tickets.search("printer", limit=200, entities=["Ticket"], group=True)
    assert sorted(each.document_id for each in found) == sorted(each.document_id for each in first)
    assert len(tickets.search("printer", limit=4, entities=["Ticket"], group=True)) == 4
    assert len(tickets.search("printer", limit=200, group=True)) == 12, "a document of two entities is two"


def test_a_document_of_many_chunks_hides_no_other(tmp_path: Path) -> None:
    docs = tmp_path / "few"
    docs.mkdir()
    (tmp_path / "many").mkdir()
    for name in ("long", "longer"):
        (docs / f"{name}.md").write_text("\n\n".join(f"Zebra {name}." for _ in range(1_200)))
    (docs / "short.md").write_text("Some words of which only one, zebra, is looked for among many others here.\n")
    project = declared(tmp_path)
    chunk = {"size": 20, "overlap": 0}
    made = project.project.model_dump(by_alias=True, exclude_unset=True)
    made["entities"] = {"Few": {**made["entities"]["Few"], "chunk": chunk}}
    project = instep.Instep(Project.model_validate(made | {"root": tmp_path}))
    project.run()
    for mode in ("text", "vector", "hybrid"):
        found = project.search("zebra", mode=mode, limit=3, group=True)
        assert len({each.document_id for each in found}) == len(found) == 3, mode
        assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
        assert project.search("zebra", mode=mode, limit=1, offset=2, group=True) == found[2:]


def test_hits_are_passed_over(tickets: instep.Instep) -> None:
    every = tickets.search("printer", limit=9)
    assert tickets.search("printer", limit=4, offset=5) == every[5:]
    grouped = tickets.search("printer", limit=6, group=True, entities=["Ticket"])
    assert tickets.search("printer", limit=3, offset=3, group=True, entities=["Ticket"]) == grouped[3:]
    assert tickets.search("printer", limit=5, offset=500) == []
    for offset in (-1, 996):
        with pytest.raises(UserError, match="out of range"):
            tickets.search("printer", limit=5, offset=offset)


def test_a_text_alone_is_one_name_not_its_letters(tickets: instep.Instep) -> None:
    one, several = "Ticket", ["Ticket"]
    assert tickets.search("printer", entities=one) == tickets.search("printer", entities=several)
    assert tickets.facets("printer", "team", entities=one) == tickets.facets("printer", ["team"], entities=several)
    assert [each.ref for each in tickets.status(one)] == [each.ref for each in tickets.status(several)]
    assert tickets.want(one).refs == tickets.want(several).refs
    assert as_principals("group:ops") == ("group:ops",)


def test_facets_count_chunks_by_the_values_of_a_column(tickets: instep.Instep) -> None:
    chunks = Counter(each.title for each in tickets.search("printer", limit=200, entities=["Ticket"]))
    of_team = {
        team: sum(chunks[f"Printer {n}"] for n in range(6) if n % 2 == odd) for odd, team in ((0, "dev"), (1, "ops"))
    }

    def counts(column: str, query: str = "printer", **more: Any) -> dict[Any, int]:
        return {each.value: each.count for each in tickets.facets(query, [column], **more)[column]}

    assert counts("team") == of_team, "an entity without this column counts nothing"
    assert counts("team", where="year = 2020", entities=["Ticket"]) == {"ops": chunks["Printer 1"]}
    assert counts("year", "absentword", mode="text") == counts("year", "absentword") == {}
    assert sum(counts("year", "absentword", mode="vector").values()) == sum(chunks.values())
    assert len(counts("year", limit=2)) == 2
    assert list(tickets.facets("printer", ["year", "team", "year"])) == ["year", "team"]


def test_facets_of_several_entities_add_up_rare_values_and_keep_types_apart(tmp_path: Path) -> None:
    for name, marked in (("left", "true"), ("right", "1")):
        (tmp_path / name).mkdir()
        for n in range(150):
            # Values 0 to 99 stand twice on the left and once on the right, the others once and twice.
            times = 1 + ((n < 100) == (name == "left"))
            for time in range(times):
                front = f"---\nnumber: n{n:03}\nmarked: {marked}\nacl: [public]\n---\n"
                (tmp_path / name / f"{n}-{time}.md").write_text(f"{front}The printer.\n")

    def entity(path: str, marked: str) -> dict[str, Any]:
        columns = {"number": "string", "marked": marked, "acl": "string[]"}
        source = {"type": "files", "path": path}
        return {"source": source, "target": "main", "columns": columns, "readers": "acl"}

    declaration = {
        "name": "p",
        "root": tmp_path,
        "engine": "inline",
        "targets": {"main": {"type": "lance", "uri": "index"}},
        "entities": {"Left": entity("left", "bool"), "Right": entity("right", "int")},
    }
    project = instep.Instep(Project.model_validate(declaration))
    project.run()
    found = project.facets("printer", ["number", "marked"], limit=100)
    assert {each.count for each in found["number"]} == {3}
    assert [(each.value, type(each.value), each.count) for each in found["marked"]] == [
        (True, bool, 250),
        (1, int, 200),
    ]
    with pytest.raises(UserError, match="no facet by 'colour'") as caught:
        project.facets("printer", ["colour"])
    assert "acl" not in str(caught.value)


def test_facets_that_cannot_be_counted_are_refused(tickets: instep.Instep) -> None:
    for column, why in (("tean", "there is no column 'tean'"), ("modified", "there is no column 'modified'")):
        with pytest.raises(UserError, match=why) as caught:
            tickets.facets("printer", [column])
        assert "team, year" in str(caught.value)
    for limit in (0, 101):
        with pytest.raises(UserError, match="1 to 100 values"):
            tickets.facets("printer", ["team"], limit=limit)


def test_no_filter_finds_what_readers_may_not(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    for name in ("alice", "bob"):
        front = f"---\nacl: [{name}]\nowner: {name}\n---\n"
        (tmp_path / "notes" / f"{name}.md").write_text(f"{front}# Note of {name}\n\nThe printer.\n")
    note = {
        "source": {"type": "files", "path": "notes"},
        "target": "main",
        "columns": {"acl": "string[]", "owner": "string"},
        "readers": "acl",
    }
    declaration = {
        "name": "p",
        "root": tmp_path,
        "engine": "inline",
        "targets": {"main": {"type": "lance", "uri": "index"}},
        "entities": {"Note": note},
    }
    project = instep.Instep(Project.model_validate(declaration))
    project.run()
    for where in (None, "owner = 'bob' OR owner = 'alice'", "NOT title = 'x' OR owner IS NULL"):
        found = project.search("printer", where=where, principals=["alice"])
        assert [each.title for each in found] == ["Note of alice"], where
        assert project.search("printer", where=where, group=True) == []
        counts = project.facets("printer", ["owner"], where=where, principals=["alice"])["owner"]
        assert [(each.value, each.count) for each in counts] == [("alice", 1)], where
        assert project.facets("printer", ["owner"], where=where) == {"owner": []}


def test_a_project_that_stays_open_sees_what_others_do(tickets: instep.Instep) -> None:
    """What is served is remembered between searches, but never longer than it is so."""
    other = instep.Instep(tickets.project)

    def found(**asked: Any) -> int:
        return len(tickets.search("printer", limit=100, group=True, entities=["Ticket"], **asked))

    folder = tickets.project.root / "tickets"
    assert (found(), found()) == (6, 6)
    (folder / "0.md").unlink()
    other.run(["Ticket"], allow_deletes=True)
    assert found() == 5, "rows of the same index"
    (folder / "1.md").unlink()
    other.run(["Ticket"], full_refresh=True, allow_deletes=True)
    assert found(where="team = 'ops'") == 2, "another index"
    # The whole project, ledger and all, is replaced by a new one at the same place.
    shutil.rmtree(tickets.project.root / ".instep")
    shutil.rmtree(tickets.project.root / "index")
    with pytest.raises(UserError, match="nothing is indexed yet"):
        found()
    other.run(["Ticket"])
    assert found() == 4


def test_the_second_search_asks_for_what_is_served_no_more(
    tickets: instep.Instep, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[str] = []
    served = LanceTarget.served

    def counted(self: LanceTarget, alias: str) -> str | None:
        looked.append(alias)
        return served(self, alias)

    monkeypatch.setattr(LanceTarget, "served", counted)
    monkeypatch.setattr(looks, "_SECONDS", 3600.0)
    for _ in range(3):
        tickets.search("printer", where="team = 'ops'", entities=["Ticket"])
    assert len(looked) == 1


def test_an_index_that_is_gone_is_looked_for_once_more(tickets: instep.Instep, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between a look and the search another process may promote an index, and drop the one that was served."""
    monkeypatch.setattr(looks, "_SECONDS", 3600.0)
    assert tickets.search("printer", entities=["Ticket"])
    target = LanceTarget(str(tickets.project.root / "index"))
    old = target.served("Ticket")
    # As though the ledger had told nothing of it.
    with monkeypatch.context() as told:
        told.setattr(Events, "last", lambda self: 0)
        assert tickets.search("printer", entities=["Ticket"])
        instep.Instep(tickets.project).run(["Ticket"], full_refresh=True)
        assert old is not None
        target.remove(old)
        assert tickets.search("printer", entities=["Ticket"])
    assert target.served("Ticket") != old


def test_a_hit_says_which_build_it_is_of_and_up_to_when_that_is_complete(
    tickets: instep.Instep, monkeypatch: pytest.MonkeyPatch
) -> None:
    def told(generation: str | None = None) -> tuple[str | None, int | None]:
        found = tickets.search("printer", limit=100, entities=["Ticket"], generation=generation)
        [only] = {(each.instance, each.watermark) for each in found}
        return only

    def recorded(generation: str | None = None) -> tuple[str | None, int | None]:
        [status] = tickets.status(["Ticket"], generation=generation)
        return status.instance, status.watermark

    first = told()
    assert first == recorded()
    assert all(first)
    new = tickets.project.root / "tickets" / "new.md"
    new.write_text("---\nteam: ops\n---\n# Printer\n\nThe printer is new.\n")
    tickets.run(["Ticket"])
    refreshed = told()
    assert refreshed == recorded() != first
    assert refreshed[0] == first[0]

    served: list[tuple[str | None, int | None]] = []
    promote = LanceTarget.promote

    def promoted(target: LanceTarget, alias: str, physical: str | None, epoch: int) -> None:
        promote(target, alias, physical, epoch)
        served.append(told())

    monkeypatch.setattr(LanceTarget, "promote", promoted)
    tickets.run(["Ticket"], full_refresh=True)
    monkeypatch.undo()
    rebuilt = told()
    assert rebuilt == recorded()
    assert rebuilt[0] != first[0]
    assert (rebuilt[0], None) in served, "it is known which build it is before it is known up to when it is complete"
    tickets.run(["Ticket"], generation="v2")
    assert told("v2") == recorded("v2") != rebuilt
