"""The main job on Spark: the same truth, user transforms, a session of one's own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest

import instep
from instep.ledger.job_log import SPARK
from instep.pipeline.documents.embed.static import StaticEmbedder
from instep.pipeline.engine.class_cache import spark_home
from tests.documents.test_parser_process import GOOD, slow

from . import corpus, truth
from .conftest import Location

pytestmark = pytest.mark.spark

TRANSFORM = '''
from pyspark.sql import functions as F

def shout(rows):
    """Puts every chunk into capitals."""
    return rows.withColumn("text", F.upper("text")).withColumn("origin", F.lit("shout"))

def sorts(rows):
    return rows.orderBy("chunk_index")
'''

SCRIPT = """
import json, sys, instep
from instep.answers.answer import as_json
from instep.answers.results import run_answer
from instep.errors import UserError
from instep.container import Container
from pyspark.sql import SparkSession
options = {"spark.ui.enabled": "false", "spark.sql.codegen.wholeStage": "false"}
options["spark.driver.defaultJavaOptions"] = "{java}"
spark = SparkSession.builder.master("local[2]").config(map=options).getOrCreate()
spark.sparkContext.setLogLevel("OFF")
def run(folder, **options):
    (result,) = instep.Instep(instep.load(folder).project, spark=spark).run(**options)
    return as_json(run_answer(result))
answers = []
{body}
spark.sql("select 1").collect()  # Our own session goes on.
print("ANSWERS", json.dumps(answers))
"""


def in_a_notebook(folder: Path, body: str) -> list[dict[str, object]]:
    """Run Python code with a Spark session of its own, in a process of its own.

    Java is there sooner so, and the Python workers compile no zipped PySpark: each of the five kinds takes seconds.
    """
    home = spark_home()
    java = " ".join(["-XX:TieredStopAtLevel=1", *home.java_options()])
    code = SCRIPT.replace("{java}", java).replace("{body}", textwrap.dedent(body))
    # In an activated environment `python3` is this Python; Spark's workers look for that.
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(home.folder)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("ANSWERS "))
    found: list[dict[str, object]] = json.loads(line.removeprefix("ANSWERS "))
    return found


@pytest.mark.proof
def test_builds_edits_and_transforms_with_a_session_of_its_own(place: Location, tmp_path: Path) -> None:
    plain, shouted, sorting = (
        place,
        Location(tmp_path / "shouted", place.docs),
        Location(tmp_path / "sorting", place.docs),
    )
    for each, name in ((shouted, "shout"), (sorting, "sorts")):
        each.declare(entity=f"transform: shouting:{name}")
        (each.root / "shouting.py").write_text(TRANSFORM)
    (place.docs / "bad.md").write_bytes(b"\xff\xfa")
    edit = f"""
    from pathlib import Path
    answers.append(run({str(plain.root)!r}))
    path = Path({str(corpus.path(place.docs, 3))!r})
    path.write_text(path.read_text() + "\\n## More\\n\\nA new ending.\\n")
    Path({str(corpus.path(place.docs, 4))!r}).unlink()
    answers.append(run({str(plain.root)!r}))
    answers.append(run({str(shouted.root)!r}))
    try:
        run({str(sorting.root)!r})
        answers.append({{}})
    except UserError as error:
        answers.append({{"error": str(error), "jobs": len(instep.load({str(sorting.root)!r}).jobs())}})
    (setup,) = Container(instep.load({str(shouted.root)!r}).project, spark=spark).setups()
    answers.append({{"found": setup.checks()["transform"]()}})
    """
    first, second, third, fourth, fifth = in_a_notebook(place.root, edit)
    assert first["engine"] == second["engine"] == third["engine"] == "spark"
    assert first["counts"]["failed"] == 1  # type: ignore[index]  # JSON
    assert (second["counts"]["written"], second["counts"]["deleted"]) == (1, 1)  # type: ignore[index]  # JSON
    good = truth.expected(place.docs, keep=lambda path: path.name != "bad.md")
    assert truth.difference(good, truth.stored(plain.index)) == ""
    upper = Counter({(identity, text.upper()): count for (identity, text), count in good.items()})
    assert truth.difference(upper, truth.stored(shouted.index)) == ""
    # Nothing was begun: no job, no index.
    assert str(fourth["error"]).startswith("shouting:sorts: the transform moves document rows between tasks: sort")
    assert fourth["jobs"] == 0
    assert not sorting.index.exists()
    assert fifth["found"] == "shouting:shout adds origin"


def test_the_command_line_starts_spark_and_says_nothing_of_it(place: Location) -> None:
    place.declare(extra='spark: {config: {spark.ui.enabled: "true", spark.ui.port: "0"}}')
    done = subprocess.run(
        [sys.executable, "-m", "instep", "run", "--engine", "spark", "--json"],
        cwd=place.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    (result,) = json.loads(done.stdout)
    assert result["engine"] == "spark"
    assert place.wrong() == ""
    pages = [each.text for each in instep.load(place.root).job_log(result["job"]) if each.kind == SPARK]
    assert [re.sub(r"\d+$", "", each) for each in pages] == [f"http://{urlsplit(pages[0]).hostname}:"], "Spark's own"


def test_a_pdf_that_occupies_its_parser_fails_alone_in_a_task(tmp_path: Path) -> None:
    """The process that parses is made by the task, and ends with it."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "slow.pdf").write_bytes(slow())
    (tmp_path / "docs" / "good.pdf").write_bytes(GOOD)
    (tmp_path / "instep.yaml").write_text(
        "name: pdfs\nengine: spark\nspark: {master: 'local[1]'}\n"
        "targets: {index: {type: lance, uri: .instep/index}}\n"
        "entities: {Document: {source: {type: files, path: docs}, limits: {parse_time: 300ms}}}\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "instep", "run", "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    (result,) = json.loads(done.stdout)
    assert (result["engine"], result["counts"]["written"], result["counts"]["failed"]) == ("spark", 1, 1)
    (failed,) = instep.load(tmp_path).failures()
    assert failed.reason == "takes longer than 300ms to parse (parse_time)"
    assert len(list((tmp_path / ".instep" / "parsed").rglob("*.z"))) == 1, "the other one need not be parsed again"


FUNCTIONS = """
def parse(data, uri):
    if uri.endswith("/bad.md"):
        raise ValueError("not this one")
    return data.decode().upper()

def embed(texts):
    return [[float(len(each)), 1.0, 0.5] for each in texts]

def never(data, uri):
    raise LookupError("nothing is read, and least of all " + uri)

def cut(text, kind):
    return [each.strip() + "!" for each in text.split("\\n\\n") if each.strip()]
"""


def test_functions_of_the_project_go_to_the_tasks_and_the_model_in_a_wheel_is_found_there(
    place: Location, tmp_path: Path
) -> None:
    """The code is in no folder that a task has on its path: it goes there with the session."""
    own, static, broken = place, Location(tmp_path / "static", place.docs), Location(tmp_path / "broken", place.docs)
    broken.declare(entity="parse: {type: python, function: 'functions_of_a_project:never'}")
    embed = "embed: {type: hashing, dimensions: 32}"
    for each, declared in (
        (own, "embed: {type: python, function: 'functions_of_a_project:embed', dimensions: 3}"),
        (static, "embed: {type: static}"),
    ):
        each.declare(entity="parse: {type: python, function: 'functions_of_a_project:parse'}" if each is own else "")
        file = each.root / "instep.yaml"
        assert embed in file.read_text()
        file.write_text(file.read_text().replace(embed, declared))
    cut = "chunk: {type: python, function: 'functions_of_a_project:cut'}"
    file = own.root / "instep.yaml"
    file.write_text(re.sub(r"chunk: \{.*\}", cut, file.read_text()))
    assert cut in file.read_text()
    code = tmp_path / "code" / "functions_of_a_project.py"
    code.parent.mkdir()
    code.write_text(FUNCTIONS)
    (place.docs / "bad.md").write_text("# Bad\n")
    first, second, third = in_a_notebook(
        place.root,
        f"""
        sys.path.append({str(code.parent)!r})
        answers.append(run({str(own.root)!r}))
        (failure,) = instep.load({str(own.root)!r}).failures()
        answers[0]["reason"] = failure.reason
        answers.append(run({str(static.root)!r}))
        try:
            run({str(broken.root)!r})
        except UserError as error:
            failures = instep.load({str(broken.root)!r}).failures()
            answers.append({{"stopped": str(error), "failures": len(failures)}})
        """,
    )
    assert "functions_of_a_project:never: it failed for 10 documents in a row; the last one with LookupError (" in str(
        third["stopped"]
    )
    assert "functions_of_a_project.py:11 in never)" in str(third["stopped"])
    assert "least of all" not in str(third["stopped"])
    assert third["failures"] == 0
    assert (first["engine"], second["engine"]) == ("spark", "spark")
    assert first["counts"]["failed"] == 1  # type: ignore[index]  # JSON
    assert str(first["reason"]).startswith("ValueError: not this one (")
    assert str(first["reason"]).endswith("functions_of_a_project.py:4 in parse)")
    rows = lance_rows(own.index, ["text", "vector"])
    assert len(rows) > 60
    assert all(each["text"] == each["text"].upper() and each["text"].endswith("!") for each in rows)
    assert all(each["vector"] == [float(len(each["text"])), 1.0, 0.5] for each in rows)
    texts = lance_rows(static.index, ["text", "vector"])
    made = StaticEmbedder().embed([each["text"] for each in texts])
    assert np.allclose(made, [each["vector"] for each in texts], atol=1e-5)


SOURCE = """
from instep import ListedDocument, ReadDocument
from shelves_of_a_project.shelf import TEXTS

def listed():
    for id, text in TEXTS.items():
        yield ListedDocument(id, str(len(text)))

def read(id):
    if id == "torn":
        raise ValueError("a page is missing")
    return ReadDocument(TEXTS[id], title=id.upper())
"""
SHELF = 'TEXTS = {f"book {each}": f"What book {each} says." for each in range(40)} | {"torn": "Once upon"}\n'


def test_a_source_of_the_project_goes_to_the_tasks_and_fails_for_one_document_with_its_line(tmp_path: Path) -> None:
    package = tmp_path / "code" / "shelves_of_a_project"
    package.mkdir(parents=True)
    for name, content in (("__init__", ""), ("books", SOURCE), ("shelf", SHELF)):
        (package / f"{name}.py").write_text(content)
    project = tmp_path / "project"
    project.mkdir()
    (project / "instep.yaml").write_text(
        "name: books\nengine: spark\ntargets: {lance: {type: lance, uri: index}}\n"
        "entities:\n  Document:\n    source:\n      type: python\n"
        "      list: 'shelves_of_a_project.books:listed'\n      read: 'shelves_of_a_project.books:read'\n"
    )
    first, second = in_a_notebook(
        project,
        f"""
        sys.path.append({str(package.parent)!r})
        answers.append(run({str(project)!r}))
        (failure,) = instep.load({str(project)!r}).failures()
        answers[0].update(reason=failure.reason, uri=failure.uri, stage=failure.stage)
        answers.append(run({str(project)!r}))
        """,
    )
    assert (first["engine"], first["state"]) == ("spark", "COMPLETED_WITH_ERRORS")
    assert (first["counts"]["written"], first["counts"]["failed"]) == (40, 1)  # type: ignore[index]  # JSON
    assert (str(first["uri"]).rpartition("/")[2], first["stage"]) == ("torn", "read")
    assert str(first["reason"]).startswith("ValueError: a page is missing (")
    assert str(first["reason"]).endswith("shelves_of_a_project/books.py:11 in read)")
    rows = lance_rows(project / "index", ["title", "text"])
    assert {(each["title"], each["text"]) for each in rows} == {
        (f"BOOK {each}", f"What book {each} says.") for each in range(40)
    }
    assert second["counts"]["written"] == 0, "nothing has another version"  # type: ignore[index]  # JSON


def lance_rows(index: Path, columns: list[str]) -> list[dict[str, Any]]:
    import lance

    (dataset,) = (each for each in index.glob("Document__*.lance"))
    return list(lance.dataset(str(dataset)).to_table(columns=columns).to_pylist())


_CLOSED = """\
name: closed
engine: spark
targets:
  lance: {type: lance, uri: index}
entities:
  Note: {source: {type: files, path: docs}, columns: {acl: "string[]", note: string}, readers: acl}
  Line: {source: {type: feed, path: feed}, columns: {acl: "string[]", note: string}, readers: acl}
  Row:
    source: {type: spark, path: rows.parquet}
    document: {key: id, text: text}
    columns: {acl: "string[]", note: string}
    readers: acl
  Loud:
    source: {type: files, path: docs}
    columns: {acl: {type: "string[]", from: front_matter}, note: {type: string, from: front_matter}}
    readers: acl
    transform: "shouting:shout"
"""


@pytest.mark.proof
def test_a_revocation_in_a_document_that_fails_is_obeyed_on_spark(tmp_path: Path) -> None:
    """Of files, a feed, a table and behind a transform. The first loses a reader, the second all, the third names none
    that can be told.
    """
    (tmp_path / "instep.yaml").write_text(_CLOSED)
    (tmp_path / "shouting.py").write_text(TRANSFORM)
    body = f"""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pathlib import Path
    root = Path({str(tmp_path)!r})
    def put(readers, note):
        for name in ("docs", "feed"):
            (root / name).mkdir(exist_ok=True)
        lines = []
        for number, acl in enumerate(readers):
            front = f"acl: {{json.dumps(acl)}}\\nnote: {{note if number < 3 else 'fine'}}\\n"
            (root / "docs" / f"{{number}}.md").write_text(f"---\\n{{front}}---\\nzebra {{number}}\\n")
            said = {{"acl": acl, "note": note if number < 3 else "fine"}}
            lines.append({{"id": str(number), "text": f"zebra {{number}}", **said}})
        (root / "feed" / "all.jsonl").write_text("".join(json.dumps(each) + "\\n" for each in lines))
        pq.write_table(pa.table({{
            "id": list(range(len(readers))),
            "text": [each["text"] for each in lines],
            "acl": [json.dumps(each["acl"]) for each in lines],
            "note": [each["note"] for each in lines],
        }}), root / "rows.parquet")
    def tell():
        project = instep.Instep(instep.load(root).project, spark=spark)
        def found_by(reader, entity):
            hits = project.search("zebra", entities=[entity], limit=20, principals=[reader])
            return sorted(each.text[-1] for each in hits)
        results = project.run()
        found = {{
            entity: {{reader: found_by(reader, entity) for reader in ("alice", "bob", "carol")}}
            for entity in ("Note", "Line", "Row", "Loud")
        }}
        told = [as_json(run_answer(each)) for each in results]
        counts = {{
            each["ref"].partition("@")[0]: [each["counts"]["failed"], each["counts"]["embedded"]] for each in told
        }}
        answers.append({{"found": found, "counts": counts, "engines": sorted({{each["engine"] for each in told}})}})
    put([["alice", "bob"]] * 4, "fine")
    tell()
    put([["bob"], ["carol"], "bob", ["alice", "bob"]], "x" * 3000)
    tell()
    put([["bob"], ["carol"], ["bob"], ["alice", "bob"]], "fine")
    tell()
    """
    first, second, third = in_a_notebook(tmp_path, body)
    for name in ("Note", "Line", "Row", "Loud"):
        assert first["found"][name] == {"alice": list("0123"), "bob": list("0123"), "carol": []}  # type: ignore[index]  # JSON
        assert second["counts"][name] == [3, 0]  # type: ignore[index]  # JSON
        assert second["found"][name] == {"alice": ["3"], "bob": ["0", "3"], "carol": []}, name  # type: ignore[index]  # JSON
        assert third["found"][name] == {"alice": ["3"], "bob": ["0", "2", "3"], "carol": ["1"]}, name  # type: ignore[index]  # JSON
        assert third["counts"][name] == [0, 0]  # type: ignore[index]  # JSON
    assert first["engines"] == second["engines"] == third["engines"] == ["spark"]
