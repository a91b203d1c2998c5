"""Tells whether a dear test must run: one of the files on which it depends has changed since it last passed.

Tests depend on all that their file imports or names, through as many files as it takes, on fixtures of the folders that
it is in, on the data beside any of these, and on the versions of libraries; those of the documentation on all pages.
`proved.txt`, which is committed, holds for each file of tests the digest of all that with which its proofs passed.
`make proof` runs them and writes it; `make test` runs them whenever it differs, `make soak` always.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
PROVED: Final = Path(__file__).parent / "proved.txt"

#: The versions of libraries: a newer one may do otherwise.
_LIBRARIES: Final = "requirements.lock"
#: The pages, and how the site is made of them.
_PAGES: Final = ("docs", "README.md", "zensical.toml")
#: The composition root, and all above it. Tests that reach one of these run the whole product.
_WHOLE: Final = ("src/instep/api/", "src/instep/app/", "src/instep/cli/", "src/instep/container.py")
#: What works on jobs. Not the faces (command line, HTTP, page, answers), nor how requests come: those have tests that
#: always run.
_WORK: Final = tuple(
    f"src/instep/{each}"
    for each in (
        *("arrow", "clickhouse", "container.py", "document_state", "domain", "entities", "error_transport.py"),
        *("errors.py", "jobs", "ledger", "own_code.py", "own_faults.py", "own_source.py", "pipeline", "planning"),
        *("postgres", "servers", "sources", "targets"),
    )
)
#: What executors on other machines do otherwise than a local Spark: code, paths, Python and settings.
_CLUSTER: Final = tuple(
    f"src/instep/{each}"
    for each in (
        *("answers/cluster.py", "cli/pack.py", "error_transport.py", "errors.py", "own_code.py", "own_source.py"),
        *("pipeline/engine", "jobs/wave.py", "project/cluster.py", "targets/trial.py"),
    )
)
#: What a wave needs of an engine.
_ENGINE: Final = tuple(
    f"src/instep/{each}"
    for each in ("domain", "error_transport.py", "errors.py", "own_code.py", "own_source.py", "pipeline")
)
#: What tests of the whole product are about, by the beginnings of their paths; of all others it is `_WORK`.
ABOUT: Final = {
    "tests/api/test_serving.py": tuple(
        f"src/instep/{each}"
        for each in (
            *("api", "app", "cli/serve.py", "cli/signals.py", "cli/workers.py", "jobs/serve.py", "jobs/worker.py"),
            "requests",
        )
    ),
    "tests/e2e/cluster/": _CLUSTER,
    "tests/e2e/test_packed_environment.py": _CLUSTER,
    "tests/e2e/test_outages.py": ("src/instep/answers/doctor.py", "src/instep/cli/exit_codes.py", *_ENGINE),
    "tests/e2e/test_demo.py": ("examples/demo.py", "src/instep/app", *_WORK),
    "tests/engine/": _ENGINE,
    "tests/e2e/test_row_documents.py": tuple(
        f"src/instep/{each}"
        for each in (
            *("document_state", "domain", "entities/documents", "entities/setup.py", "error_transport.py", "errors.py"),
            *("ledger/bases.py", "ledger/documents.py", "ledger/plans.py", "own_code.py", "own_source.py", "pipeline"),
            *("planning", "sources"),
        )
    ),
    "tests/e2e/test_spark.py": ("src/instep/container.py", "src/instep/entities/documents", *_ENGINE),
    "tests/e2e/tables/test_queued": ("src/instep/queues", *_WORK),
    "tests/jobs/test_queue": ("src/instep/queues", *_WORK),
    "tests/telemetry/": tuple(f"src/instep/{each}" for each in ("bus", "jobs", "requests", "telemetry")),
    "tests/web/": tuple(f"src/instep/{each}" for each in ("answers", "api", "app", "requests", "web")),
}
#: Files of tests, and folders of them, of which all are proofs: they need a server, a Spark or a browser of their own,
#: wait for processes, or try each of many cases. What they have in common with others is seen on SQLite, on Lance and
#: inline.
DEAR: Final = tuple(
    f"tests/{each}"
    for each in (
        *("bench/test_corpus_and_truth.py", "bus/test_nats", "bus/test_servers.py"),
        *("documents/test_syntax.py", "documents/test_tokens.py", "documents/test_wrong_"),
        *("e2e/cluster/", "e2e/kafka/", "e2e/lakes/", "e2e/test_batches.py", "e2e/test_joined_documents.py"),
        *("e2e/test_money.py", "e2e/test_ownership.py", "e2e/test_requests_at_once.py", "e2e/test_spark.py"),
        *("e2e/tables/test_queued", "e2e/tables/test_reconcile.py", "e2e/tables/test_types.py"),
        *("e2e/tables/test_windows.py", "e2e/test_state_at_url.py", "e2e/test_watch.py"),
        *("engine/test_master.py", "engine/test_spark"),
        *("jobs/test_losses.py", "jobs/test_newer_code.py", "jobs/test_outages.py", "jobs/test_queue_consumers.py"),
        *("ledger/test_mysql.py", "ledger/test_open_servers.py", "ledger/test_postgres.py"),
        *("ledger/test_processes.py", "ledger/test_recent_entries.py", "ledger/test_sqlite_plans.py"),
        *("queues/test_clickhouse", "queues/test_killed_backfill.py", "queues/test_postgres"),
        *("simulator/test_queues.py", "simulator/test_windows.py", "soak/test_full_disk.py", "soak/test_outage.py"),
        *("sources/tables/test_clickhouse.py", "sources/tables/test_database_probe.py"),
        *("sources/tables/test_lake_windows.py", "sources/tables/test_spark", "sources/test_object_store.py"),
        *("sources/test_s3_inventory.py", "sources/test_sqs_events.py"),
        *("targets/elasticsearch/", "targets/milvus/", "targets/opensearch/", "targets/postgres/"),
        *(
            "targets/test_clickhouse",
            "targets/test_dripping.py",
            "targets/test_qdrant",
            "targets/test_wrong_targets.py",
        ),
        *("telemetry/test_lineage", "telemetry/test_traces.py", "web/"),
    )
)

_CHECKED_ONLY: Final = re.compile(r"^if TYPE_CHECKING:\n(?:[ \t].*\n|\n)*", re.MULTILINE)
#: On a line of its own, or in the text of a program.
_IMPORTED: Final = re.compile(
    r"""(?:^|[;"'])[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)""", re.MULTILINE
)
_NAMED: Final = re.compile(r"\b(?:instep|tests|examples|bench)(?:\.\w+)+")
#: Its Python API, or its command line.
_PUBLIC: Final = re.compile(r'\binstep\.(?:Instep|load)\b|^from instep import|"-m", "instep"', re.MULTILINE)


def digest(tests: str, root: Path = ROOT) -> str:
    """Of the names and contents of all that this file of tests depends on; the same on every machine."""
    total = blake2b(digest_size=16)
    for name in sorted(depends(tests, root)):
        total.update(f"{name} ".encode() + _digest(root / name))
    return total.hexdigest()


def depends(tests: str, root: Path = ROOT) -> set[str]:
    """The files on which this file of tests depends."""
    folders = [*Path(tests).parents][:-2]  # What is in `tests` itself says how tests are run, and not what.
    waiting = {name for name in (tests, *(f"{each.as_posix()}/conftest.py" for each in folders)) if _is(root, name)}
    found: set[str] = set()
    while waiting:
        found |= waiting
        waiting = {each for name in waiting for each in _imports(name, root)} - found
    if any(each.startswith(_WHOLE) for each in found):
        about = next((places for start, places in ABOUT.items() if tests.startswith(start)), _WORK)
        found = {each for each in found if not each.startswith("src/")} | {
            each for place in about for each in _below(place, root)
        }
    if "src/instep/ledger/schema.py" in found:
        found |= _below("src/instep/ledger/migrations", root)
    found |= {name for folder in {Path(each).parent for each in found} for name in _data(folder, root)}
    if tests.startswith("tests/docs/"):
        found |= {each for place in _PAGES for each in _below(place, root)}
    return found | {each for each in (_LIBRARIES,) if _is(root, each)}


def is_proved(tests: str, root: Path = ROOT, file: Path = PROVED) -> bool:
    return (known := proved(file).get(tests)) is not None and known == digest(tests, root)


def proved(file: Path = PROVED) -> dict[str, str]:
    """The digest with which the proofs of each file have passed."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return dict(line.split() for line in lines)


@cache
def _imports(name: str, root: Path) -> frozenset[str]:
    """Files that this one imports, wherever in it, or names in a text."""
    if not name.endswith(".py") or name.startswith(_WHOLE):
        return frozenset()
    text = _CHECKED_ONLY.sub("", (root / name).read_text(encoding="utf-8"))
    modules = set(_NAMED.findall(text))
    here = Path(name).with_suffix("").parts
    here = here[1:] if here[0] == "src" else here
    for dots, module, names in _IMPORTED.findall(text):
        base = [*here[: len(here) - len(dots)], module] if dots else [module]
        start = ".".join(each for each in base if each)
        modules |= {start, *(f"{start}.{each}" for each in re.findall(r"\w+", names))}
    if not name.startswith("src/") and _PUBLIC.search(text):
        modules.add("instep.app")
    return frozenset(file for module in modules for file in _files(module, root))


@cache
def _files(module: str, root: Path) -> tuple[str, ...]:
    """The file of a module, and those of the packages that it is in."""
    names = module.split(".")
    if names[0] not in ("instep", "tests", "examples", "bench"):
        return ()
    place = "src/" if names[0] == "instep" else ""
    # The root package imports what it is asked for.
    paths = [place + "/".join(names[:length]) for length in range(2, len(names) + 1)]
    return tuple(each for path in paths for each in (f"{path}.py", f"{path}/__init__.py") if _is(root, each))


@cache
def _is(root: Path, name: str) -> bool:
    return (root / name).is_file()


@cache
def _digest(file: Path) -> bytes:
    return blake2b(file.read_bytes(), digest_size=16).digest()


@cache
def _below(place: str, root: Path) -> frozenset[str]:
    here = root / place
    files = [here] if here.is_file() else [each for each in here.rglob("*") if each.is_file()]
    return frozenset(each.relative_to(root).as_posix() for each in files if each.suffix != ".pyc")


@cache
def _data(folder: Path, root: Path) -> frozenset[str]:
    """What is beside modules, and no module: configuration, programs in Java, files as they were once written."""
    if folder.parts[0] not in ("src", "tests") or len(folder.parts) < 2:
        return frozenset()
    return frozenset((folder / each.name).as_posix() for each in (root / folder).iterdir() if _is_data(each))


def _is_data(file: Path) -> bool:
    return file.is_file() and file.suffix not in (".py", ".pyc")


def forget() -> None:
    """Look at all files anew."""
    for each in (_imports, _files, _is, _digest, _below, _data):
        each.cache_clear()


#: Options with which not all tests of a file may run.
_PARTLY: Final = ("-k", "-x", "--deselect", "--exitfirst", "--last-failed", "--lf", "--maxfail", "--stepwise", "--sw")


class _Outcomes:
    """Files of tests that have passed, and those in which one has not."""

    def __init__(self) -> None:
        self.passed: set[str] = set()
        self.others: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        (self.passed if report.passed else self.others).add(report.nodeid.partition("::")[0])


def main(options: Sequence[str]) -> int:
    """Run the proofs of files that have changed, and note with what each file's have passed."""
    if wrong := [each for each in options if each.startswith(_PARTLY) or "::" in each]:
        print(f"proofs are noted by whole files: leave out {' '.join(wrong)}", file=sys.stderr)
        return int(pytest.ExitCode.USAGE_ERROR)
    before = {each: digest(each) for each in _all()}
    outcomes = _Outcomes()
    code = int(pytest.main(["-q", "-m", "proof and not long", *options], plugins=[outcomes]))
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):  # Of some files not all have run.
        return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code
    forget()
    good = {each for each in outcomes.passed - outcomes.others if before.get(each) == digest(each)}
    noted = {name: known for name, known in proved().items() if name in before} | {each: before[each] for each in good}
    PROVED.write_text("".join(f"{each} {noted[each]}\n" for each in sorted(noted)), encoding="utf-8")
    return code


def _all() -> list[str]:
    return [each.relative_to(ROOT).as_posix() for each in sorted((ROOT / "tests").rglob("test_*.py"))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
