"""A git repository's history as a graph, kept in step by Instep: people, commits, files, and who changed what.

    python examples/git/run.py PATH_TO_CLONE

exports what is new in the clone's history to Parquet, runs Instep on it, and answers three questions by the
graph. Call it again after `git pull`: only what is new is read. README.md beside this file tells more.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from answers import answers
from export import Found, export

HERE = Path(__file__).resolve().parent
INSTEP = Path(sys.executable).with_name("instep")

PROJECT = """\
# Written by examples/git/run.py: everything Instep needs to know.
name: git
targets:
  graph: {{type: {into}, uri: graph}}
entities:
  Person:
    source: {{type: spark, path: {tables}/people}}
    key: email
    watermark: exported_at
    deletes: &any {{share: 1.0}}       # a branch that was rewritten may lose anything
    node: {{label: Person, properties: [name]}}
  Commit:
    source: {{type: spark, path: {tables}/commits}}
    key: sha
    watermark: exported_at
    deletes: *any
    node: {{label: Commit, properties: [subject, authored_at, committed_at]}}
    edges:
      - {{kind: AUTHORED, from: {{label: Person, columns: author}}, to: {{label: Commit}}}}
      - {{kind: COMMITTED, from: {{label: Person, columns: committer}}, to: {{label: Commit}}}}
  Parent:                            # a commit has none, one or many
    source: {{type: spark, path: {tables}/parents}}
    key: [sha, parent]
    watermark: exported_at
    deletes: *any
    edges:
      - {{kind: PARENT, from: {{label: Commit, columns: sha}}, to: {{label: Commit, columns: parent}}}}
  File:
    source: {{type: spark, path: {tables}/files}}
    key: path
    watermark: exported_at
    deleted: gone
    deletes: *any
    node: {{label: File, properties: [folder]}}
  Change:                            # the join table of commits and files, with what was changed
    source: {{type: spark, path: {tables}/changes}}
    key: [sha, path]
    watermark: exported_at
    deletes: *any
    node: {{label: Change, properties: [additions, deletions]}}
    edges:
      - {{kind: CHANGED, from: {{label: Commit, columns: sha}}, to: {{label: File, columns: path}}}}
"""


def main() -> int:
    given = _arguments()
    work = (given.work or HERE / "work" / f"{given.clone.resolve().name}-{given.into}").resolve()
    if not given.answer:
        if shutil.which("java") is None:
            print("Instep reads tables on Spark, which needs Java 17 or newer, and no `java` was found on PATH.")
            return 1
        found = prepare(given.clone, work, given.into)
        print(
            f"Exported {found.commits:,} commits and {found.changes:,} changes of files to {found.tables}", flush=True
        )
        code = subprocess.run([INSTEP, "run"], cwd=work, check=False).returncode
        if code:
            return code
    elif not (work / "graph").is_dir():
        print(f"There is no graph in {work} yet: leave out --answer.")
        return 1
    for question, answer in answers(work / "graph", given.into):
        print(f"\n{question}\n\n{answer}", end="")
    return 0


def prepare(clone: Path, work: Path, into: str) -> Found:
    """Export what is new, and write the project."""
    found = export(clone, work / "history")
    project = PROJECT.format(into=into, tables=found.tables.relative_to(work).as_posix())
    (work / "instep.yaml").write_text(project, encoding="utf-8")
    return found


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("clone", type=Path, help="folder of a clone, bare or not")
    parser.add_argument("--into", choices=("clickhouse", "lance"), default="clickhouse", help="where the graph lands")
    parser.add_argument(
        "--work", type=Path, help="folder for the export and the graph; default: work/ beside this file"
    )
    parser.add_argument("--answer", action="store_true", help="only ask the questions, of what is indexed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
