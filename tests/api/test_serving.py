"""`instep serve` as a process: what it prints, the worker that it starts, and how it ends."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from instep.cli import main
from instep.errors import UserError
from tests.api.conftest import TIMEOUT_SECONDS, bearer, write
from tests.waiting import until

GIVEN = "a-token-that-was-given"


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str, str]]:
    """The process, its address, and the token if it prints one."""
    command = [sys.executable, "-m", "instep", "serve", "--project", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        said = re.fullmatch(
            r"small is served at (http://127\.0\.0\.1:\d+)/(?:#token=(.+))?\n", process.stdout.readline()
        )
        assert said is not None, process.communicate()
        yield process, said[1], said[2] or ""
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.mark.proof
def test_a_job_is_done_by_a_worker_of_the_server_which_ctrl_c_ends(folder: Path) -> None:
    write(folder, 3)
    with (
        serving(folder) as (process, address, token),
        httpx.Client(base_url=address, headers=bearer(token), timeout=TIMEOUT_SECONDS) as client,
    ):
        asked = client.post("/api/jobs", json={"entities": ["Document"], "batchSize": 100, "consumerThreads": 1})
        assert (asked.status_code, asked.json()["worker"]) == (202, True)

        def done() -> bool:
            (want,) = client.get("/api/wants?ended=true").json()["items"]
            return want["state"] == "Successful" and not client.get("/api/workers").json()["items"]

        until(done)
        (job,) = client.get("/api/jobs").json()["items"]
        assert (job["state"], job["counts"]["written"]) == ("COMPLETED", 3)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (0, "")
        assert err.endswith("stopped\n")
        assert "Traceback" not in err


@pytest.mark.long
def test_a_token_that_is_given_is_not_printed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "token").write_text(f"{GIVEN}\n")
    monkeypatch.setenv("INSTEP_TOKEN", "another-that-is-passed-over")
    with serving(folder, "--token-file", str(folder / "token")) as (process, address, token):
        assert token == ""
        with httpx.Client(base_url=address, timeout=TIMEOUT_SECONDS) as client:
            want = {"refs": ["Document"]}
            assert client.post("/api/wants", json=want).status_code == 401
            assert client.post("/api/wants", json=want, headers=bearer(GIVEN)).status_code == 202
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0


@pytest.mark.parametrize("token", ["short", "with spaces in it, and long", "täken-täken-täken", ""])
def test_a_token_that_could_be_guessed_is_refused(
    folder: Path, token: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INSTEP_TOKEN", token)
    assert main(["serve", "--project", str(folder), "--port", "0"]) == 1
    assert "a token must have at least 16 characters" in capsys.readouterr().err


def test_a_port_in_use_is_reported_in_a_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from instep.cli.serve import listen

    with listen("127.0.0.1", 0) as taken:
        assert main(["serve", "--project", str(folder), "--port", str(taken.getsockname()[1])]) == 1
    assert "it cannot listen on 127.0.0.1 port" in capsys.readouterr().err


def test_without_its_libraries_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from instep.cli import serve

    monkeypatch.setattr(serve, "find_spec", lambda name: None if name == "uvicorn" else object())
    with pytest.raises(UserError, match="serving needs uvicorn") as caught:
        serve.demand_libraries()
    assert caught.value.hint == "pip install 'instep[serve]'"
