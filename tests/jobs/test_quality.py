"""Judged queries: how well what is served answers them, and a build that finds worse is not served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.domain.jobs import JobState
from instep.errors import UserError
from instep.project import Project
from instep.project.documents import DocumentEntity
from tests.jobs.test_reranking import serving

TOPICS = {
    "reset": "How to reset the password of your account: choose a new one on the page of settings.",
    "tides": "The moon pulls the sea twice a day, and a neap tide comes with the half moon.",
    "bread": "Knead flour, water and salt, wait for an hour, and bake the loaf in a hot oven.",
    "winds": "The wind fills the sails of a ship and carries it over the sea.",
}
QUERIES = [
    {"id": "r", "query": "reset password", "relevant": ["reset.md"]},
    {"id": "t", "query": "neap tide", "relevant": {"tides": 2}},
    {"id": "b", "query": "bake a loaf", "relevant": ["docs/bread.md"]},
]


def project(root: Path, embed: dict[str, Any], least: dict[str, Any] | None = None, **more: Any) -> instep.Instep:
    docs = root / "docs"
    if not docs.exists():
        docs.mkdir()
        for name, text in TOPICS.items():
            (docs / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
        (root / "judged.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    entity: dict[str, Any] = {"source": {"type": "files", "path": "docs"}, "embed": embed, "chunk": {"size": 200}}
    entity |= more
    if least:
        entity["promotion"] = {"queries": "judged.jsonl", "at_least": least}
    declared = {"name": "p", "root": root, "engine": "inline", "entities": {"Page": entity}}
    return instep.Instep(Project.model_validate({**declared, "targets": {"index": {"type": "lance", "uri": "index"}}}))


STATIC = {"type": "static"}
HASHING = {"type": "hashing", "dimensions": 64}


def test_the_mode_of_a_search_suits_what_the_vectors_know(tmp_path: Path) -> None:
    hashed = project(tmp_path, HASHING)
    hashed.run()
    assert {each.mode for each in hashed.search("neap tide")} == {"text"}
    assert {each.mode for each in hashed.search("neap tide", mode="hybrid")} == {"hybrid"}
    meant = project(tmp_path, STATIC)
    assert {each.mode for each in meant.search("neap tide")} == {"text"}, "what is served has no such vectors yet"
    meant.run()
    found = meant.search("a forgotten login secret")
    assert found[0].mode == "hybrid"
    assert found[0].source_uri.endswith("reset.md"), "no word of it is in that page"
    assert found[0].source_uri not in {each.source_uri for each in meant.search("forgotten login secret", mode="text")}


def test_weak_matches_are_called_weak_where_the_vectors_know_it(tmp_path: Path) -> None:
    meant = project(tmp_path, STATIC)
    meant.run()
    assert meant.search("when is a neap tide")[0].weak is False
    found = meant.search("lattice quantum chromodynamics", mode="vector")
    assert [each.weak for each in found] == [True] * 4, "something is always the nearest"
    hashed = project(tmp_path, HASHING)
    hashed.run()
    assert {each.weak for each in hashed.search("neap tide", mode="hybrid")} == {None}


def test_the_command_calls_weak_matches_weak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for embed, weak in ((STATIC, True), (HASHING, None)):
        root = tmp_path / str(embed["type"])
        root.mkdir()
        project(root, embed).run()
        declared = {"Page": {"source": {"type": "files", "path": "docs"}, "embed": embed, "chunk": {"size": 200}}}
        targets = {"index": {"type": "lance", "uri": "index"}}
        (root / "instep.yaml").write_text(
            json.dumps({"name": "p", "engine": "inline", "entities": declared, "targets": targets})
        )
        monkeypatch.chdir(root)
        capsys.readouterr()
        for query, expected in (("when is a neap tide", weak and False), ("lattice quantum chromodynamics", weak)):
            asked = ["search", query, "--mode", "vector", "--limit", "1"]
            assert main([*asked, "--json"]) == 0
            assert json.loads(capsys.readouterr().out)[0]["weak"] is expected
            assert main(asked) == 0
            head = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("1. "))
            assert head.endswith("  weak") is bool(expected), head


def test_declared_weights_decide_what_comes_first(tmp_path: Path) -> None:
    """No word of the query is in the page that it means, and one of another is."""
    best = {}
    for name, weights in (("words", {"text": 1, "vector": 0.01}), ("meaning", {"text": 0.01, "vector": 1})):
        opened = project(tmp_path, STATIC, search={"mode": "hybrid", "weights": weights})
        opened.run()
        best[name] = opened.search("forgotten login secret, cannot sign in, loaf")[0].source_uri.rsplit("/", 1)[-1]
    assert best == {"words": "bread.md", "meaning": "reset.md"}
    (unsaid,) = project(tmp_path, STATIC).project.entities.values()
    assert isinstance(unsaid, DocumentEntity)
    assert unsaid.embed.weight == 0.5, "as docs/quality.md says"


def test_what_is_served_is_measured_in_every_mode(tmp_path: Path) -> None:
    opened = project(tmp_path, STATIC)
    with pytest.raises(UserError, match="nothing is built"):
        opened.evaluate(tmp_path / "judged.jsonl")
    opened.run()
    found = opened.evaluate(tmp_path / "judged.jsonl")
    assert [(each.mode, each.default, each.served) for each in found] == [
        ("text", False, True),
        ("vector", False, True),
        ("hybrid", True, True),
    ]
    assert all(each.scores == {"ndcg@10": 1, "recall@10": 1, "recall@100": 1, "mrr": 1} for each in found)
    assert [each.id for each in found[0].queries] == ["r", "t", "b"]
    (text,) = opened.evaluate(tmp_path / "judged.jsonl", mode="text")
    assert text == found[0]


def test_another_generation_is_measured_beside_what_is_served(tmp_path: Path) -> None:
    opened = project(tmp_path, STATIC)
    opened.run()
    (tmp_path / "docs" / "bread.md").unlink()
    opened.run(generation="v2")
    found = opened.evaluate(tmp_path / "judged.jsonl", generation="v2", mode="hybrid")
    assert [(each.generation, each.served, each.scores["recall@10"]) for each in found] == [
        ("", True, 1),
        ("v2", False, pytest.approx(2 / 3, abs=1e-4)),
    ]


def test_judgements_that_name_nothing_are_an_error_of_theirs(tmp_path: Path) -> None:
    opened = project(tmp_path, HASHING)
    opened.run()
    (tmp_path / "topics.tsv").write_text("1\tneap tide\n")
    (tmp_path / "qrels").write_text("1 0 nowhere.md 1\n")
    with pytest.raises(UserError, match="no query finds a document that is judged"):
        opened.evaluate(tmp_path / "topics.tsv", tmp_path / "qrels")
    (tmp_path / "qrels").write_text("1 0 tides.md 1\n")
    assert opened.evaluate(tmp_path / "topics.tsv", tmp_path / "qrels")[0].scores["mrr"] == 1
    with pytest.raises(UserError, match="cannot be read"):
        opened.evaluate(tmp_path / "missing.jsonl")


def test_a_build_that_finds_worse_is_not_served(tmp_path: Path) -> None:
    least = {"recall@10": "0.98 of served"}
    assert project(tmp_path, STATIC, least).run()[0].promoted
    bread = tmp_path / "docs" / "bread.md"
    bread.rename(tmp_path / "docs" / "cake.md")
    opened = project(tmp_path, STATIC, least)
    (result,) = opened.run(full_refresh=True)
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert result.notes[0] == (
        "its search quality is too low: recall@10 is 0.667, and at least 0.980 is required, 0.98 of the 1.000 that is "
        "served; "
        "answered worse: b (1.00 → 0.00); the served index stays (see `instep evaluate`)"
    )
    assert opened.search("bake a loaf", limit=1)[0].source_uri.endswith("bread.md"), "what was served stays"
    (tmp_path / "docs" / "cake.md").rename(bread)
    assert opened.run(full_refresh=True)[0].promoted


def test_a_generation_that_finds_worse_is_not_promoted(tmp_path: Path) -> None:
    opened = project(tmp_path, STATIC, {"recall@10": "0.98 of served"})
    opened.run()
    (tmp_path / "docs" / "bread.md").rename(tmp_path / "docs" / "cake.md")
    opened.run(generation="v2")
    with pytest.raises(UserError, match=r"answered worse: b \(1.00 → 0.00\)"):
        opened.promote("Page", "v2")


def test_a_build_with_another_embedder_is_compared_with_what_was_found_before(tmp_path: Path) -> None:
    query = {"id": "login", "query": "a forgotten login secret", "relevant": ["reset.md"]}
    least = {"mrr": "0.9 of served"}
    opened = project(tmp_path, STATIC, least)
    (tmp_path / "judged.jsonl").write_text(json.dumps(query))
    assert opened.run()[0].promoted
    served = {each.chunk_id for each in opened.search("sea", limit=10)}
    worse = project(tmp_path, HASHING, least)
    (result,) = worse.run()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert "mrr is 0.000, and at least 0." in result.notes[0]
    assert "login (" in result.notes[0]
    assert {each.chunk_id for each in opened.search("sea", limit=10)} == served
    assert project(tmp_path, HASHING).run()[0].promoted, "without the demand it is served"


def test_what_is_served_already_is_measured_in_the_first_run_that_knows_of_the_demand(tmp_path: Path) -> None:
    assert project(tmp_path, STATIC).run()[0].promoted
    query = {"id": "login", "query": "a forgotten login secret", "relevant": ["reset.md"]}
    (tmp_path / "judged.jsonl").write_text(json.dumps(query))
    least = {"mrr": "0.9 of served"}
    assert project(tmp_path, STATIC, least).run()[0].state is None, "nothing to do"
    (result,) = project(tmp_path, HASHING, least).run()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert "its search quality is too low: mrr is 0.000" in result.notes[0]


def asked(root: Path, **relevant: str) -> None:
    """Judged queries of a word each, in place of those that are there."""
    told = [{"id": word, "query": word, "relevant": [page]} for word, page in relevant.items()]
    (root / "judged.jsonl").write_text("\n".join(map(json.dumps, told)))


def test_builds_in_two_languages_are_each_asked_in_their_own(tmp_path: Path) -> None:
    least = {"recall@10": "0.98 of served"}
    english = project(tmp_path, HASHING, least)
    asked(tmp_path, kneaded="bread.md", tide="tides.md")  # "Knead" to English stems, and another word to German ones.
    assert english.run()[0].promoted
    german = project(tmp_path, HASHING, least, search={"language": "german"})
    (result,) = german.run()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert "answered worse: kneaded (1.00 → 0.00)" in result.notes[0]
    assert german.evaluate(tmp_path / "judged.jsonl", mode="text")[0].scores["mrr"] == 1, "what is served is English"

    german.run(generation="v2")
    found = german.evaluate(tmp_path / "judged.jsonl", generation="v2", mode="text")
    assert [(each.generation, each.scores["mrr"]) for each in found] == [("", 1), ("v2", 0.5)]
    with pytest.raises(UserError, match=r"answered worse: kneaded \(1.00 → 0.00\)"):
        german.promote("Page", "v2")


RERANKER = """
def last_first(query, texts):
    return [float("bake" in each) for each in texts]


def by_words(query, texts):
    return [float(any(word in each for word in query.split())) for each in texts]
"""


@pytest.fixture
def rerankers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The module of two rerankers: one that puts the page about bread first, and one that reads the query."""
    name = f"rerankers_of_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(RERANKER)
    monkeypatch.syspath_prepend(tmp_path)
    return name


def reranked(module: str, function: str) -> dict[str, Any]:
    return {"mode": "hybrid", "rerank": {"type": "python", "function": f"{module}:{function}"}}


def test_a_demand_is_asked_of_what_the_reranker_makes_of_a_build(tmp_path: Path, rerankers: str) -> None:
    worse = project(tmp_path, STATIC, {"mrr": 0.9}, search=reranked(rerankers, "last_first"))
    asked(tmp_path, tide="tides.md")
    (result,) = worse.run()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    (note,) = result.notes[:1]
    assert note.startswith("its search quality is too low: mrr is 0.500"), "found first, and then put behind bread"
    better = project(tmp_path, STATIC, {"mrr": 0.9}, search=reranked(rerankers, "by_words"))
    assert better.run()[0].promoted


def test_what_is_served_is_measured_anew_when_another_reranker_is_declared(tmp_path: Path, rerankers: str) -> None:
    """A build with another embedder is compared with what searches find before it, not with what they found once."""
    least = {"mrr": "0.9 of served"}
    project(tmp_path, HASHING)
    asked(tmp_path, tide="tides.md")
    first = project(tmp_path, STATIC, least, search=reranked(rerankers, "last_first"))
    assert first.run()[0].promoted, "nothing was served"
    assert project(tmp_path, STATIC, least, search=reranked(rerankers, "by_words")).run()[0].state is None
    worse = project(tmp_path, HASHING, least, search=reranked(rerankers, "last_first"))
    (result,) = worse.run()
    assert (result.state, result.promoted) == (JobState.FAILED, False)
    assert "mrr is 0.500, and at least 0.900 is required, 0.9 of the 1.000 that is served" in result.notes[0]


def test_a_build_waits_for_its_reranker_to_be_measured(tmp_path: Path) -> None:
    """A search does without a reranker that is away; a demand would then be asked of something else."""
    last = json.dumps({"results": [{"index": at, "relevance_score": at} for at in range(len(TOPICS))]})
    with serving(script=[503, 503], answer=last.encode()) as (url, requests):
        search = {"mode": "vector", "rerank": {"type": "http", "url": url}}
        opened = project(tmp_path, HASHING, {"mrr": 0.9}, search=search)
        asked(tmp_path, sea="reset.md")  # Nothing of it is in that page, so it is the last one.
        (result,) = opened.run()
    assert result.promoted, "as the reranker has it"
    assert len(requests) == 3


def test_a_value_is_asked_of_the_first_build_too(tmp_path: Path) -> None:
    opened = project(tmp_path, HASHING, {"ndcg@10": 0.9})
    query = {"id": "login", "query": "forgotten login secret", "relevant": ["reset.md", "tides.md"]}
    (tmp_path / "judged.jsonl").write_text(f"{json.dumps(query)}\n{json.dumps(QUERIES[0])}")
    (result,) = opened.run()
    assert "ndcg@10 is 0.500, and at least 0.900" in result.notes[0]
    with pytest.raises(UserError, match="nothing is indexed"):
        opened.search("sea")


def test_queries_that_cannot_be_read_stop_a_run_before_anything_is_built(tmp_path: Path) -> None:
    opened = project(tmp_path, HASHING, {"mrr": 0.5})
    (tmp_path / "judged.jsonl").unlink()
    with pytest.raises(UserError, match=r"there is no file .*judged\.jsonl") as refused:
        opened.run()
    assert "`promotion.queries`" in str(refused.value.hint)
    assert refused.value.where == "Page: promotion.queries"


def test_a_missing_file_of_queries_is_named_with_the_line_that_declares_it(tmp_path: Path) -> None:
    project(tmp_path, HASHING)
    (tmp_path / "instep.yaml").write_text("""
name: p
engine: inline
targets: {i: {type: lance, uri: index}}
entities:
  Page:
    source: {type: files, path: docs}
    promotion:
      queries: gone.jsonl
      at_least: {mrr: 0.5}
""")
    with pytest.raises(UserError) as refused:
        instep.load(tmp_path).run()
    assert str(refused.value.where).endswith("instep.yaml:9")


def test_the_command_shows_a_table_and_the_worst(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = "name: p\nengine: inline\ntargets: {i: {type: lance, uri: index}}\nentities:\n"
    project(tmp_path, HASHING)
    (tmp_path / "instep.yaml").write_text(f"{text}  Page: {{source: {{type: files, path: docs}}}}\n")
    asked = str(tmp_path / "judged.jsonl")
    assert main(["run", "--project", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["evaluate", asked, "--project", str(tmp_path), "--worst", "1"]) == 0
    shown = capsys.readouterr().out
    assert "3 queries" in shown
    assert "text (default)" in shown
    assert "answered worst" in shown
    assert main(["evaluate", asked, "--project", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["mode"] for each in found] == ["text", "vector", "hybrid"]
    assert [len(each["queries"]) for each in found] == [3, 3, 3]
    assert {*found[0]["scores"]} == {"ndcg@10", "recall@10", "recall@100", "mrr"}
    assert main(["evaluate", asked, "--project", str(tmp_path), "--mode", "fuzzy"]) == 1
    assert "Allowed: text, vector, hybrid" in capsys.readouterr().err
    assert main(["search", "neap tide", "--project", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("found by words\n")
    assert main(["search", "neap tide", "--mode", "hybrid", "--project", str(tmp_path)]) == 0
    assert capsys.readouterr().out.startswith("found by words and hashed words\n")
