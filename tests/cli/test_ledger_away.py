"""A ledger whose server is away: every command says so, and returns 75, for a service manager to try again."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.cli import main
from tests.e2e import corpus

COMMANDS = (
    *(("run",), ("worker",), ("plan",), ("status",), ("jobs",), ("workers",), ("failures",), ("search", "words")),
    *(("job", "show", "1f0c"), ("job", "stop", "1f0c"), ("job", "resume", "1f0c"), ("job", "retry", "1f0c")),
)


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the ledger of the project should be; its folder is the current one."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, without a listener
        server = f"127.0.0.1:{probe.getsockname()[1]}/ledger"
        corpus.write(tmp_path / "docs", range(1))
        corpus.project(tmp_path, tmp_path / "docs", extra=f"ledger: postgresql://ann:s3cret@{server}")
        monkeypatch.chdir(tmp_path)
        yield f"postgresql://{server}"


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_ledger_that_is_away_is_named(
    address: str, command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(list(command)) == 75
    out, err = capsys.readouterr()
    message, hint = err.splitlines()
    assert message.startswith(f"error: {address}: the ledger cannot be reached (")
    assert hint == "hint: Check host and port in `ledger:`, and that the server runs and can be reached from here."
    assert "s3cret" not in out + err
    assert "ann:" not in out + err


def test_with_json_it_is_reported_in_json(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--json"]) == 75
    out, _ = capsys.readouterr()
    error = json.loads(out)["error"]
    assert (error["kind"], error["where"], error["exit_code"]) == ("Away", address, 75)
    assert "s3cret" not in out
