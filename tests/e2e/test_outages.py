"""What is away or not as it has to be is said in a sentence, by its exit code too, and no document is blamed for it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

import instep
from instep.cli import main

from .conftest import Location

pytestmark = pytest.mark.spark

INSTEP = [sys.executable, "-c", "import sys; from instep.cli import main; sys.exit(main(sys.argv[1:]))"]

#: Found by Python when it starts, in this process's children: modules of these names cannot be imported.
BLOCKER = """
import os, sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in os.environ["NOT_INSTALLED"].split():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def mute() -> Iterator[int]:
    """A port that is taken, without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Takes connections, and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(120)
        yield listening


def called(place: Location, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {key: value for key, value in os.environ.items() if not key.startswith(("SPARK_", "PYSPARK_"))}
    return subprocess.run(
        [*INSTEP, *command],
        cwd=place.root,
        env=given | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def demand_a_sentence(done: subprocess.CompletedProcess[str], said: str) -> None:
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, done.stderr
    assert said in errors[0]
    assert "Traceback" not in done.stderr
    assert "report this" not in done.stderr
    assert "a wave has failed" not in done.stderr


def demand_no_failures(place: Location) -> None:
    """No document failed, and no attempt was spent."""
    assert list(instep.load(place.root).failures()) == []
    engine = sa.create_engine(f"sqlite:///{place.root / '.instep' / 'ledger.db'}")
    with engine.connect() as ledger:
        rows = ledger.execute(sa.text("SELECT state, attempts FROM slices")).all()
    engine.dispose()
    assert {tuple(row) for row in rows} <= {("PENDING", 0)}


@pytest.mark.proof
@pytest.mark.parametrize("remote", [False, True])
def test_spark_that_is_away_is_named_as_such(place: Location, mute: int, remote: bool) -> None:
    where = f"{'sc' if remote else 'spark'}://127.0.0.1:{mute}"
    place.declare(extra=f"engine: spark\nspark: {{{'remote' if remote else 'master'}: '{where}'}}")
    done = called(place, "run")
    assert done.returncode == 75, done.stderr
    demand_a_sentence(done, f"{where}: ")
    assert "Connection refused" in done.stderr
    demand_no_failures(place)
    checked = called(place, "check")
    assert checked.returncode == 75, checked.stderr
    assert f"Spark: {where}: " in checked.stdout
    assert "Connection refused" in checked.stdout


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ("instep.jobs.finish._refine", "stopped; all is written, nothing is left to resume"),
        ("instep.jobs.finish._seal", "stopped; run again to resume"),
    ],
)
def test_ctrl_c_says_whether_anything_is_left(
    place: Location, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], step: str, said: str
) -> None:
    place.declare()

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(step, interrupted)
        assert main(["run", "--project", str(place.root), "--quiet"]) == 130
    assert capsys.readouterr().err == f"{said}\n"
    result = place.run()
    assert (result.state is None) is ("nothing is left" in said)
    assert place.wrong() == ""


@pytest.mark.proof
@pytest.mark.parametrize("command", ["run", "check"])
def test_one_ctrl_c_ends_the_wait_for_a_server_that_says_nothing(
    place: Location, silent: socket.socket, command: str
) -> None:
    place.declare(extra=f"engine: spark\nspark: {{remote: 'sc://127.0.0.1:{silent.getsockname()[1]}'}}")
    with subprocess.Popen([*INSTEP, command], cwd=place.root, stderr=subprocess.PIPE, text=True) as process:
        connection, _ = silent.accept()  # It waits for an answer now.
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=120)
        connection.close()
    assert process.returncode == 130, stderr
    assert stderr.splitlines()[-1] == "stopped; run again to resume"
    assert "Traceback" not in stderr


@pytest.mark.proof
def test_workers_that_run_another_python_are_named(place: Location, tmp_path: Path) -> None:
    place.declare(extra="engine: spark\nspark: {master: 'local[1]'}")
    none = str(tmp_path / "no-python")
    done = called(place, "run", PYSPARK_PYTHON=none)
    assert done.returncode == 1, done.stderr
    demand_a_sentence(done, f"Spark cannot run '{none}'")
    demand_no_failures(place)


@pytest.mark.proof
@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_an_extra_that_is_missing_is_named(place: Location, tmp_path: Path, mute: int, engine: str) -> None:
    blocker = tmp_path / "blocker"
    blocker.mkdir()
    (blocker / "sitecustomize.py").write_text(BLOCKER)
    place.declare(extra=f"engine: {engine}\nspark: {{master: 'local[1]'}}")
    declared, url = place.root / "instep.yaml", f"http://127.0.0.1:{mute}"
    declared.write_text(declared.read_text().replace("{type: hashing,", f"{{type: openai, url: '{url}', model: m,"))
    given = {"PYTHONPATH": str(blocker), "NOT_INSTALLED": "httpx"}
    for command in ("run", "check") if engine == "inline" else ("run",):
        # Whether Spark works is not asked here.
        java = {"JAVA_HOME": str(tmp_path)} if command == "check" else {}
        done = called(place, command, **given, **java)
        assert done.returncode == 1, done.stderr
        assert "pip install 'instep[openai]'" in done.stdout + done.stderr
        assert "report this" not in done.stderr
        assert "a wave has failed" not in done.stderr
    demand_no_failures(place)
