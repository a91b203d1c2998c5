"""What embedding costs: `python -m bench.embedders`, over 20,000 documents in this process's environment.

The embedder `static` beside a bare loop (`bench/bare.py`) around the same model by its own library; and a function of
the project beside the built-in embedder that it calls.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from bench import bare, corpus, measure
from bench.run import say
from instep.pipeline.documents.embed.hashing import HashingEmbedder

STATIC_GOAL, OWN_GOAL = 1.3, 1.05
_PATH: Final = f"import sys; sys.path.append({str(Path(__file__).parents[1])!r})"
EMBED: Final = {
    "static": "{type: static}",
    "hashing": "{type: hashing, dimensions: 384}",
    "own function": "{type: python, function: 'bench.embedders:hashed', dimensions: 384, cache: false, batch: 8192}",
}


def hashed(texts: list[str]) -> Any:
    """The built-in embedder as a function of a project."""
    return HashingEmbedder(384).embed(texts)


def bare_static() -> None:
    """The bare loop, with the model as its own library runs it."""
    bare.DIMENSIONS = 256
    bare.embedder = _wordllama
    bare.main()


def _wordllama() -> Any:
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer
    from wordllama.inference import WordLlamaInference

    spec = find_spec("wordllama")
    assert spec is not None
    assert spec.submodule_search_locations
    # By its files: its loader looks for the tokenizer in another folder than the one that it is in, and downloads it.
    folder = Path(spec.submodule_search_locations[0])
    weights: Any = load_file(folder / "weights/l2_supercat_256.safetensors")["embedding.weight"]
    tokenizer = Tokenizer.from_file(str(folder / "tokenizers/l2_supercat_tokenizer_config.json"))
    model = WordLlamaInference(weights, tokenizer)
    return lambda texts: model.embed(texts.to_pylist(), norm=True)


def main() -> None:
    asked = argparse.ArgumentParser(prog="python -m bench.embedders", description=__doc__)
    asked.add_argument("--documents", type=int, default=20_000)
    asked.add_argument("--repeat", type=int, default=3)
    given = asked.parse_args()
    found: dict[str, list[measure.Measured]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        corpus.generate(root / "docs", given.documents)
        for time in range(given.repeat):
            for name in ("bare static", *EMBED):
                place = root / f"{name} {time}".replace(" ", "-")
                place.mkdir()
                command: Sequence[str | Path]
                if name in EMBED:
                    (place / "instep.yaml").write_text(_project(name))
                    call = "from instep.cli import main; sys.exit(main())"
                    command = [sys.executable, "-c", f"{_PATH}; {call}", "run", "--json"]
                else:
                    call = "from bench.embedders import bare_static; bare_static()"
                    command = [sys.executable, "-c", f"{_PATH}; {call}", "../docs", "state"]
                found.setdefault(name, []).append(measure.run(command, folder=place))
                say(f"{name}: {found[name][-1].seconds:.1f} s, {found[name][-1].cpu:.1f} CPU s")
    for name, each in found.items():
        print(f"{name}: {_median(each, 'seconds'):.2f} s, {_median(each, 'cpu'):.2f} CPU s (median of {len(each)})")
    for side, other, goal in (("static", "bare static", STATIC_GOAL), ("own function", "hashing", OWN_GOAL)):
        for what in ("seconds", "cpu"):
            times = _median(found[side], what) / _median(found[other], what)
            verdict = "met" if times <= goal else "MISSED"
            print(f"{side}: {times:.2f} times {other} in {what} (goal: {goal}): {verdict}")


def _median(each: Sequence[measure.Measured], what: str) -> float:
    return float(statistics.median(getattr(one, what) for one in each))


def _project(name: str) -> str:
    return (
        "name: bench\nengine: inline\ntargets: {index: {type: lance, uri: .instep/index}}\n"
        f"entities:\n  Document:\n    source: {{type: files, path: ../docs}}\n    embed: {EMBED[name]}\n"
    )


if __name__ == "__main__":
    main()
