"""How well searches find: `python -m bench.quality FOLDER`, where FOLDER holds a judged collection.

The collection is a folder `docs` and a file `judged.jsonl` (`bench.linked` makes some), or has the files of the SMART
system: documents (`cran.all.1400`, `cacm.all`), queries (`cran.qry`, `query.text`) and judgements (`cranqrel`,
`qrels.text`), as the University of Glasgow lists them (ir.dcs.gla.ac.uk/resources/test_collections). Their source
states no licence, so they are not in this repository. Each judged document counts as relevant.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import instep
from bench import models
from bench.run import say
from instep.domain.relevance import METRICS
from instep.project import Project

EMBEDDERS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "hashing": lambda: {"type": "hashing"},
    "static": lambda: {"type": "static"},
    **{name: partial(models.embed, name) for name in models.MODELS},
}
#: Functions in `bench.rerankers`.
RERANKERS: Final = ("maxsim", "bge")
#: Hits that they look at.
TOP: Final = 50
#: nDCG@10 of hybrid searches with `static`, at least so many times that of …
GOALS: Final = {("static", "text"): 1.0, ("hashing", "hybrid"): 1.2}

_RECORD: Final = re.compile(r"\.I (\d+)\s*$")
_FIELD: Final = re.compile(r"^\.([A-Z])\s*$")


def records(file: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Number (`.I`) and fields (`.T`, `.W`, …) of each record of a SMART file."""
    number, fields, field = 0, defaultdict[str, list[str]](list), ""
    for line in [*file.read_text(encoding="utf-8", errors="replace").splitlines(), ".I 0"]:
        if begun := _RECORD.match(line):
            if number:
                yield number, {name: "\n".join(lines).strip() for name, lines in fields.items()}
            number, fields, field = int(begun[1]), defaultdict(list), ""
        elif match := _FIELD.match(line):
            field = match[1]
        elif field:
            fields[field].append(line)


def judged(queries: Path, judgements: Path) -> Iterator[dict[str, Any]]:
    """Queries with their relevant documents. Judgements count queries; they do not use their numbers."""
    relevant = defaultdict[int, list[str]](list)
    for line in judgements.read_text(encoding="utf-8").splitlines():
        if columns := line.split():
            relevant[int(columns[0])].append(columns[1])
    for place, (_, fields) in enumerate(records(queries), 1):
        yield {"id": str(place), "query": " ".join(fields["W"].split()), "relevant": sorted(set(relevant[place]))}


def one(folder: Path, *patterns: str) -> Path:
    found = [each for pattern in patterns for each in folder.glob(pattern)]
    if not found:
        raise SystemExit(f"{folder} has no {' or '.join(patterns)}")
    return found[0]


def collect(folder: Path, into: Path) -> tuple[int, int]:
    """Write the collection as files of a project; returns the numbers of documents and queries."""
    docs = into / "docs"
    if (folder / "judged.jsonl").exists():
        shutil.copytree(folder / "docs", docs)
        lines = (folder / "judged.jsonl").read_text(encoding="utf-8").splitlines()
        (into / "judged.jsonl").write_text("\n".join(lines), encoding="utf-8")
        return sum(1 for _ in docs.rglob("*.md")), len(lines)
    docs.mkdir()
    count = 0
    for number, fields in records(one(folder, "*.all", "*.all.[0-9]*", "*.ALL")):
        title = " ".join(fields.get("T", "").split())
        (docs / f"{number}.md").write_text(f"# {title}\n\n{fields.get('W', '')}\n", encoding="utf-8")
        count += 1
    asked = list(
        judged(one(folder, "*.qry", "*.QRY", "query.text"), one(folder, "*qrel", "*.REL", "*.rel", "qrels.text"))
    )
    (into / "judged.jsonl").write_text("\n".join(map(json.dumps, asked)), encoding="utf-8")
    return count, len(asked)


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.quality", description=__doc__)
    asked.add_argument("collection", type=Path, help="folder of the collection")
    asked.add_argument("--chunk", type=int, default=800, help="characters in a chunk")
    asked.add_argument("--vector-weight", type=float, help="weight of static vectors in hybrid searches")
    asked.add_argument("--context", action="store_true", help="embed and search title and headings with each chunk")
    asked.add_argument("--embedders", nargs="+", choices=EMBEDDERS, default=["hashing", "static"])
    asked.add_argument("--rerankers", nargs="*", choices=RERANKERS, default=[])
    given = asked.parse_args()
    found: dict[tuple[str, str], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        documents, queries = collect(given.collection, root)
        say(f"{documents:,} documents, {queries} queries of {given.collection.name}")
        print("| embedder | reranker | mode |", " | ".join(METRICS), "|\n|---|---|---|" + "---:|" * len(METRICS))
        chunk = {"size": given.chunk, "context": "headings" if given.context else None}
        for name in given.embedders:
            weight = given.vector_weight if name == "static" else None
            for reranker in ("", *given.rerankers):
                opened = instep.Instep(_project(root, name, chunk, weight, reranker))
                opened.run()
                for each in opened.evaluate(root / "judged.jsonl"):
                    scores = " | ".join(f"{each.scores[m]:.3f}" for m in METRICS)
                    print(f"| {name} | {reranker} | {each.mode} | {scores} |", flush=True)
                    if not reranker:
                        found[name, each.mode] = each.scores["ndcg@10"]
    for side, least in GOALS.items():
        if not {("static", "hybrid"), side} <= found.keys():
            continue
        times = found["static", "hybrid"] / found[side]
        verdict = "met" if times >= least else "MISSED"
        print(f"nDCG@10 of static hybrid is {times:.2f} times {' '.join(side)} (goal: at least {least}): {verdict}")


def _project(root: Path, name: str, chunk: dict[str, Any], weight: float | None, reranker: str) -> Project:
    rerank = {"type": "python", "function": f"bench.rerankers:{reranker}", "top": TOP} if reranker else None
    entity = {
        "source": {"type": "files", "path": "docs"},
        "embed": EMBEDDERS[name](),
        "chunk": chunk,
        "search": {"weights": {"vector": weight}, "rerank": rerank},
    }
    declared = {"name": name, "root": root, "ledger": f"sqlite:///{name}.db", "state": f".{name}", "engine": "inline"}
    targets = {"index": {"type": "lance", "uri": f"index-{name}"}}
    return Project.model_validate({**declared, "targets": targets, "entities": {"Document": entity}})


if __name__ == "__main__":
    main()
