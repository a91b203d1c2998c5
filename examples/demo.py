"""The first look: an index of documents and a graph of tables, built on Spark; then one file is edited.

Run it with `make demo`. It writes a project into the folder `demo/`, whose sources are what every Python environment
has: the documentation of the installed packages (their READMEs, guides and examples, with this repository's `docs/`),
and two small tables of what these packages require of each other.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import time
from contextlib import closing
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from string import Template

import pyarrow as pa
import pyarrow.parquet as pq

from instep.pipeline.engine.java import java_problem

REPOSITORY = Path(__file__).resolve().parent.parent
DEMO = REPOSITORY / "demo"
INSTEP = Path(sys.executable).with_name("instep")
WRITTEN = "# Written by examples/demo.py"

PROJECT = Template("""\
# Written by examples/demo.py: everything Instep needs to know.
name: demo
targets:
  index: {type: lance, uri: .instep/index}
  graph: {type: clickhouse, uri: .instep/graph}      # in this process; or a server
entities:
  Document:
    target: index
    source:
      type: files
      path: [notes, $packages, $docs]
      include:
        - "*.dist-info/METADATA"      # the README of every distribution
        - "**/*.md"
        - "**/*.rst"
        - "**/*.html"
        - "**/*.txt"
        - pyspark/examples/**/*.py
      exclude:
        - "*.dist-info/*.txt"         # lists of names, no documentation
        - pyspark/data/**
    chunk: {size: 800}
    embed: {type: static}         # a small model that comes with the extra `static`
  Package:
    target: graph
    source: {type: spark, format: parquet, path: tables/packages}
    key: name
    watermark: seen_at
    node: {label: Package, properties: [version, summary]}
  Requirement:
    target: graph
    source: {type: spark, format: parquet, path: tables/requirements}
    key: [name, requires]
    watermark: seen_at
    edges:
      - {kind: REQUIRES, from: {label: Package, columns: name}, to: {label: Package, columns: requires}}
""")

#: Packages by the number of steps from which they need the one in question.
GRAPH = """\
WITH RECURSIVE users AS (
    SELECT from_name AS name, 1 AS steps FROM Requirement__REQUIRES WHERE to_name = 'numpy'
    UNION ALL
    SELECT edge.from_name, steps + 1
    FROM Requirement__REQUIRES AS edge JOIN users ON edge.to_name = users.name WHERE steps < 5
)
SELECT steps, arrayStringConcat(groupArray(name), ', ')
FROM (SELECT name, min(steps) AS steps FROM users GROUP BY name ORDER BY name) GROUP BY steps ORDER BY steps
"""


def main() -> int:
    if problem := java_problem():
        print(problem)
        return 1
    began = time.monotonic()
    packages, requirements = prepare()
    print(
        f"A project in {_shown(DEMO)}: the documentation of {packages} installed packages becomes a search index,\n"
        f"and two tables, of packages and their {requirements} requirements, become a graph.\n"
    )
    say("The first build, on Spark")
    if code := instep("run", "--engine", "spark"):
        return code
    say("One file is edited, and the next run is left to choose")
    note = DEMO / "notes" / "tides.md"
    with note.open("a", encoding="utf-8") as file:
        file.write("\nA neap tide comes with the half moon.\n")
    print("$ echo 'A neap tide comes with the half moon.' >> notes/tides.md")
    if code := instep("run"):
        return code
    say("The index answers")
    for mode, question in (("text", "neap tide"), ("hybrid", "lease and fence of a slice")):
        if code := instep("search", question, "--mode", mode, "--limit", "1"):
            return code
    say("So does the graph: which packages need numpy, directly (1) or by way of others (2, …)?")
    print(ask(GRAPH))
    instep("status")
    print(
        f"That took {time.monotonic() - began:.0f} s. Next: cd demo, then\n"
        "  ../.venv/bin/instep run                        # again: nothing to do\n"
        "  ../.venv/bin/instep plan --full-refresh        # what a rebuild would do; writes nothing\n"
        '  ../.venv/bin/instep search "your question"\n'
        "  ../.venv/bin/instep serve                      # a page that shows it all\n"
        "  ../.venv/bin/instep init ~/notes               # a project of your own"
    )
    return 0


def prepare() -> tuple[int, int]:
    """Write the project, its note and its tables anew, as if for the first time; returns the sizes of the tables."""
    file = DEMO / "instep.yaml"
    if file.is_file() and file.read_text(encoding="utf-8").startswith(WRITTEN):
        shutil.rmtree(DEMO)
    (DEMO / "notes").mkdir(parents=True, exist_ok=True)
    (DEMO / "notes" / "tides.md").write_text("# Tides\n\nThe moon pulls the sea twice a day.\n", encoding="utf-8")
    packages = sysconfig.get_path("purelib")
    file.write_text(PROJECT.substitute(packages=packages, docs=REPOSITORY / "docs"), encoding="utf-8")
    rows = {_name(each.metadata["Name"]): each for each in distributions()}
    pairs = sorted(
        {
            (name, required)
            for name, each in rows.items()
            for line in each.requires or ()
            if "extra ==" not in line and (required := _name(re.split(r"[^\w.-]", line)[0])) in rows
        }
    )
    names, versions, summaries = zip(
        *((name, each.version, each.metadata.get("Summary", "")) for name, each in sorted(rows.items())), strict=True
    )
    _table("packages", name=names, version=versions, summary=summaries)
    _table("requirements", name=[name for name, _ in pairs], requires=[required for _, required in pairs])
    return len(rows), len(pairs)


def _table(folder: str, /, **columns: object) -> None:
    file = DEMO / "tables" / folder / "part-0.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    table = pa.table(columns)
    seen = pa.array([datetime.now(UTC)] * table.num_rows, pa.timestamp("us", "UTC"))
    pq.write_table(table.append_column("seen_at", seen), file)


def _name(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


def ask(question: str) -> str:
    """The answer of the graph, as any program gets it that opens the folder."""
    from chdb.state.sqlitelike import connect

    with closing(connect(str(DEMO / ".instep" / "graph" / "clickhouse"))) as connection:
        connection.query("USE instep")
        lines = str(connection.query(question, "TSVRaw")).splitlines()
    shown = (line.split("\t") for line in lines)
    return "".join(f"  {steps}  {names if len(names) < 92 else names[:89] + ' …'}\n" for steps, names in shown)


def say(text: str) -> None:
    print(f"\033[1;36m{text}\033[0m\n" if sys.stdout.isatty() else f"{text}\n", flush=True)


def instep(*arguments: str) -> int:
    shown = " ".join(f'"{each}"' if " " in each else each for each in arguments)
    print(f"\033[1m$ instep {shown}\033[0m" if sys.stdout.isatty() else f"$ instep {shown}", flush=True)
    code = subprocess.run([INSTEP, *arguments], cwd=DEMO, check=False).returncode
    print(flush=True)
    # 3: done, and some documents could not be indexed (see `instep failures`); the demo goes on.
    return 0 if code == 3 else code


def _shown(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    sys.exit(main())
