"""Code of a project in a test: a module that it writes, and the name that a package would give it."""

from __future__ import annotations

import sys
from pathlib import Path

from instep.pipeline import code_fingerprint
from instep.pipeline.documents import functions


def forget(module: str) -> None:
    """Have the next test import its own module of this name."""
    sys.modules.pop(module, None)
    functions._made.cache_clear()
    code_fingerprint._loaded.clear()
    code_fingerprint._modules.clear()


def entry_point(folder: Path, group: str, name: str, value: str, *, package: str = "own-code") -> None:
    """An installed package's metadata in this folder, which is on the path."""
    made = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    made.mkdir(exist_ok=True)
    (made / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    with (made / "entry_points.txt").open("a") as file:
        file.write(f"[{group}]\n{name} = {value}\n")
