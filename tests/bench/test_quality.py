"""A judged collection in SMART's files is read as the bench needs it."""

from __future__ import annotations

import json
from pathlib import Path

from bench.quality import collect

DOCUMENTS = ".I 1\n.T\nOf the\ntides\n.W\nThe moon pulls the sea.\n.I 2\n.T\nOf bread\n.W\nKnead it.\n"
QUERIES = ".I 001\n.W\nwhat pulls\nthe sea\n.I 004\n.W\nhow is bread made\n"
#: Judgements count queries; 4 is the number of one of them, and not its place.
JUDGEMENTS = "1 1 1\n2 2 3\n2 2 1\n"


def test_documents_queries_and_judgements_belong_together(tmp_path: Path) -> None:
    source, into = tmp_path / "smart", tmp_path / "project"
    source.mkdir()
    into.mkdir()
    (source / "small.all").write_text(DOCUMENTS)
    (source / "small.qry").write_text(QUERIES)
    (source / "smallqrel").write_text(JUDGEMENTS)
    assert collect(source, into) == (2, 2)
    assert (into / "docs" / "1.md").read_text() == "# Of the tides\n\nThe moon pulls the sea.\n"
    asked = [json.loads(line) for line in (into / "judged.jsonl").read_text().splitlines()]
    assert asked == [
        {"id": "1", "query": "what pulls the sea", "relevant": ["1"]},
        {"id": "2", "query": "how is bread made", "relevant": ["2"]},
    ]
