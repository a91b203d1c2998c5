"""What is compared: Instep on both engines, and the bare script. Each works on its own state, all on one corpus."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from bench import measure, report
from bench.environment import ROOT

PROJECT = """\
name: bench
engine: {engine}
targets: {{index: {{type: lance, uri: .instep/index}}}}
entities:
  Document:
    source: {{type: files, path: {corpus}, include: ["**/*.md"]}}
    chunk: {{size: 800, overlap: 0}}
    embed: {{type: hashing, dimensions: 384}}
"""

WARM_UP = """\
  Warm:
    source: {{type: files, path: {corpus}, include: ["**/*.md"]}}
    chunk: {{size: 800, overlap: 0}}
    embed: {{type: hashing, dimensions: 384}}
"""


class Side(Protocol):
    @property
    def name(self) -> str: ...

    def fresh(self) -> None:
        """Forget everything: the next run is an initial one."""

    def run(self) -> measure.Measured: ...

    def dataset(self) -> Path:
        """The Lance dataset that is served."""


@dataclass
class Instep:
    """`instep run` in a project folder of its own."""

    engine: str
    bin: Path
    folder: Path
    corpus: Path
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = report.INLINE if self.engine == "inline" else report.SPARK

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        (self.folder / "instep.yaml").write_text(PROJECT.format(engine=self.engine, corpus=self.corpus))

    def run(self) -> measure.Measured:
        return measure.run([self.bin / "instep", "run"], folder=self.folder)

    def dataset(self) -> Path:
        return only_dataset(self.folder / ".instep" / "index")


@dataclass
class WarmSpark:
    """An initial run through the Python API in a Spark session that has already run another entity."""

    bin: Path
    folder: Path
    corpus: Path
    warm_up: Path
    name: str = report.WARM

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        text = PROJECT.format(engine="spark", corpus=self.corpus) + WARM_UP.format(corpus=self.warm_up)
        (self.folder / "instep.yaml").write_text(text)

    def run(self) -> measure.Measured:
        done = measure.run([self.bin / "python", "-P", ROOT / "bench" / "warm.py", "instep.yaml"], folder=self.folder)
        last: dict[str, Any] = json.loads(done.output.splitlines()[-1])
        return measure.Measured(last["seconds"], done.cpu, done.peak_rss, done.output)

    def dataset(self) -> Path:
        return only_dataset(self.folder / ".instep" / "index", name="document")


@dataclass
class Bare:
    bin: Path
    folder: Path
    corpus: Path
    fts: bool = True
    name: str = field(init=False)

    def __post_init__(self) -> None:
        self.name = report.BARE if self.fts else "bare without full text"

    def fresh(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def run(self) -> measure.Measured:
        options = [] if self.fts else ["--no-fts"]
        return measure.run(
            [self.bin / "python", "-P", ROOT / "bench" / "bare.py", self.corpus, self.folder, *options],
            folder=self.folder,
        )

    def dataset(self) -> Path:
        return self.folder / "index.lance"


def only_dataset(folder: Path, name: str = "") -> Path:
    """The one physical index of an entity below a target's folder: a rebuild that left two is an error here."""
    found = [each.parent for each in folder.rglob("_versions") if each.parent.name.lower().startswith(name)]
    if len(found) != 1:
        raise measure.Failed(f"expected one dataset {name or ''} below {folder}, found {[each.name for each in found]}")
    return found[0]
