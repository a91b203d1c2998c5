"""Search: of entities, and of the lists that a hybrid answer is made of."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_SEARCH = (
    "tests/jobs/test_search.py",
    "tests/jobs/test_target_order.py::test_search_asks_the_first_target_or_the_one_that_is_named",
)
_LANCE = ("tests/targets/test_lance.py",)

MUTANTS = [
    Mutant(
        "a search asked for one entity looks into all of them",
        "app/searches.py",
        "looks: search(\n                in_one_target(opened.documents(entities), target),",
        "looks: search(\n                in_one_target(opened.documents(None), target),",
        _SEARCH,
    ),
    Mutant(
        "a search asked for one target takes any",
        "answers/search.py",
        "found = [setup for setup in setups if setup.target_name == target]",
        "found = [setup for setup in setups if setup.target_name]",
        _SEARCH,
    ),
    Mutant(
        "an entity with several targets is searched in the last one",
        "answers/search.py",
        "list({setup.alias: setup for setup in reversed(setups)}.values())[::-1]",
        "list({setup.alias: setup for setup in setups}.values())",
        _SEARCH,
    ),
    Mutant(
        "more hits are given than were asked for",
        "answers/search.py",
        "hits = alternating(answers)[offset : offset + limit]",
        "hits = alternating(answers)[offset:]",
        _SEARCH,
    ),
    Mutant(
        "what another embedder has made is searched by vectors all the same",
        "answers/search.py",
        "checkpoint.fingerprint.get(_EMBEDDER) == setup.fingerprint[_EMBEDDER]:",
        "_EMBEDDER in checkpoint.fingerprint:",
        ("tests/e2e/test_generations.py", *_SEARCH),
    ),
    Mutant(
        "hits of the last entity come first",
        "targets/ranking.py",
        "        for hits in answers\n        for rank",
        "        for hits in answers[::-1]\n        for rank",
        _SEARCH,
    ),
    Mutant(
        "an entity that is not built yet keeps the others from being found",
        "answers/search.py",
        "        if served is None:\n            continue\n",
        "        if served is None:\n            break\n",
        _SEARCH,
    ),
    Mutant(
        "a hybrid answer is the vector list alone",
        "targets/ranking.py",
        "(_fused(lists, self.weights) if",
        "(_fused([[], lists[1]], self.weights) if",
        _LANCE,
    ),
    Mutant(
        "a hybrid answer is the word list alone",
        "targets/ranking.py",
        "(_fused(lists, self.weights) if",
        "(_fused([lists[0], []], self.weights) if",
        _LANCE,
    ),
    Mutant(
        "a row's score in a hybrid answer is that of its last list",
        "targets/ranking.py",
        "score = (before.score if before else 0.0) + weight * _rank_score(rank)",
        "score = weight * _rank_score(rank)",
        _LANCE,
    ),
    Mutant(
        "the worst hit comes first",
        "targets/ranking.py",
        "key=lambda hit: (-hit.score, hit.chunk_id))",
        "key=lambda hit: (hit.score, hit.chunk_id))",
        _LANCE,
    ),
    Mutant(
        "a phrase goes on from a title to its text",
        "domain/words.py",
        'BETWEEN: Final = " ¶ "',
        'BETWEEN: Final = " "',
        ("tests/domain/test_words.py",),
    ),
    Mutant(
        "a row with a phrase's words is found wherever they stand",
        "targets/lance/searching.py",
        "for each in text.phrases]\n    queries",
        "for each in ()]\n    queries",
        _LANCE,
    ),
    Mutant(
        "facets count what the filter leaves, whatever is looked for",
        "answers/search.py",
        'if (mode or setup.search_mode) != "vector":\n                language',
        'if (mode or setup.search_mode) == "vector":\n                language',
        _SEARCH,
    ),
    Mutant(
        "words that are cut off at the end of a snippet are marked",
        "answers/snippet.py",
        "if each.start >= start and each.end <= end)",
        "if each.start >= start)",
        ("tests/jobs/test_snippets.py",),
    ),
    Mutant(
        "hits behind those that are reranked are lost",
        "pipeline/documents/rerank/reranker.py",
        ", *hits[self.top :]]",
        "]",
        ("tests/jobs/test_reranking.py",),
    ),
    Mutant(
        "true and 1 are one value of a facet",
        "answers/search.py",
        "{(type(value), value): count for value, count in counts}",
        "{(int, value): count for value, count in counts}",
        _SEARCH,
    ),
    Mutant(
        "whether a row is there is told before its readers are known to hold",
        "answers/why.py",
        "                    demand_told(setup, ledger, physical, principals, generation)\n",
        "                    pass\n",
        ("tests/api/test_readers.py",),
    ),
]
