"""The reranker sentence-transformers, with a tiny cross-encoder made here where PyTorch is installed."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from instep.entities.documents.rerankers import reranking_of
from instep.errors import UserError
from instep.project import SentenceTransformersRerank

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "jam", "paper", "printer"]
installed = pytest.mark.skipif(find_spec("sentence_transformers") is None, reason="PyTorch is too large for each run")


def tiny_cross_encoder(folder: Path) -> str:
    import torch
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(WORDS))
    torch.manual_seed(7)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(vocab_size=len(WORDS), num_labels=1, initializer_range=2.0, **sizes)
    BertForSequenceClassification(config).save_pretrained(folder)
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    return str(folder)


@installed
def test_a_cross_encoder_scores_each_text_with_the_query(tmp_path: Path) -> None:
    folder = tiny_cross_encoder(tmp_path / "model")
    made = reranking_of(SentenceTransformersRerank(type="sentence-transformers", model=folder, top=7))
    assert made is not None
    assert made.top == 7
    texts = ["printer", "paper paper", "jam"]
    found = made.reranker.scores("printer jam", texts)
    assert len(found) == len(set(found)) == 3
    assert made.reranker.scores("printer jam", texts[::-1]) == pytest.approx(found[::-1], abs=1e-5)
    assert made.reranker.scores("paper", texts) != pytest.approx(found, abs=1e-5), "the query counts"


def test_without_the_library_it_is_one_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    declared = SentenceTransformersRerank(type="sentence-transformers", model="any")
    made = reranking_of(declared)
    assert made is not None
    with pytest.raises(UserError, match="not installed") as caught:
        made.reranker.scores("a", ["b"])
    assert "instep[sentence-transformers]" in str(caught.value.hint)
