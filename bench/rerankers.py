"""Rerankers as functions of a project, made of the models in `bench.models`: none of these is a cross-encoder.

`maxsim` compares tokens, as ColBERT does: for each token of the query the nearest one of the text counts. `bge` is the
cosine of the whole texts' vectors, from the best of the embedders.
"""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any

import numpy as np
import onnxruntime  # type: ignore[import-untyped]  # has no types
from tokenizers import Tokenizer

from bench import models
from instep.pipeline.documents.embed.fastembed import FastembedEmbedder


def maxsim(query: str, texts: list[str]) -> list[float]:
    asked = _tokens(query)
    return [float((asked @ _tokens(each).T).max(axis=1).mean()) for each in texts]


def bge(query: str, texts: list[str]) -> list[float]:
    asked = _vector((models.MODELS["bge"].query_prompt or "") + query)
    return [float(asked @ _vector(each)) for each in texts]


@lru_cache(maxsize=10_000)
def _vector(text: str) -> Any:
    return FastembedEmbedder(str(models.folder("bge")), 384, pooling="cls").embed([text])[0]


@lru_cache(maxsize=10_000)
def _tokens(text: str) -> Any:
    """The vectors of its tokens, of length 1, without those around the text."""
    session, tokenizer = _minilm()
    coded = tokenizer.encode(text)
    given = {"input_ids": coded.ids, "attention_mask": coded.attention_mask, "token_type_ids": coded.type_ids}
    (found,) = session.run(None, {name: np.array([each], np.int64) for name, each in given.items()})[:1]
    vectors = found[0, 1:-1] if len(coded.ids) > 2 else found[0]
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


@cache
def _minilm() -> tuple[Any, Tokenizer]:
    folder = models.folder("minilm")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(models.MODELS["minilm"].length)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # One text at a time is too little for more.
    session = onnxruntime.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
    return session, tokenizer
