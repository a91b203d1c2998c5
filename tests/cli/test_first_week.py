"""What a new user meets first: an empty folder, and things that are out of reach."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from instep.cli import main
from tests.cli.saying import answer

PROJECT = """\
name: first
engine: inline
targets: {{pg: {{type: postgres, uri: "postgresql://ann:hidden@127.0.0.1:{port}/search"}}}}
entities:
  Document:
    source: {{type: files, path: docs}}
    embed: {{type: openai, url: "http://127.0.0.1:{port}/v1", model: some, dimensions: 3, api_key: hidden}}
"""


@pytest.fixture
def port() -> int:
    """Nobody listens there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def away(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """A project of which target and embedder are out of reach; returns their port."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "one.md").write_text("# One\n\nWords.\n")
    (tmp_path / "instep.yaml").write_text(PROJECT.format(port=port))
    monkeypatch.chdir(tmp_path)
    return port


def test_a_run_in_a_new_folder_says_where_it_looked_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    capsys.readouterr()
    (result,) = answer(capsys, "run")
    assert "there are no documents to index in `.`: put some there, or check" in " ".join(result["notes"])
    assert main(["run"]) == 0
    assert "there are no documents to index in `.`" in " ".join(capsys.readouterr().out.split())
    (tmp_path / "one.md").write_text("# One\n\nWords.\n")
    (result,) = answer(capsys, "run")
    assert (result["counts"]["written"], "no documents" in str(result["notes"])) == (1, False)


def test_a_plan_warns_that_a_run_would_wait_for_its_target(away: int, capsys: pytest.CaptureFixture[str]) -> None:
    (plan,) = answer(capsys, "plan", code=2)
    assert plan["kind"] == "first build"
    target, embedder = plan["warnings"]
    assert target.startswith(f"a run would wait for its target: postgresql://127.0.0.1:{away}/search: ")
    assert f"http://127.0.0.1:{away}/v1" in embedder
    assert "hidden" not in target + embedder


def test_so_it_does_of_a_target_that_is_asked_how_long_vectors_may_be(
    tmp_path: Path, away: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("instep.servers.calls._FIRST_WAIT", 0.001)
    postgres = f'{{type: postgres, uri: "postgresql://ann:hidden@127.0.0.1:{away}/search"}}'
    opensearch = f'{{type: opensearch, uri: "http://127.0.0.1:{away}"}}'
    (tmp_path / "instep.yaml").write_text(PROJECT.format(port=away).replace(postgres, opensearch))
    (plan,) = answer(capsys, "plan", code=2)
    assert plan["warnings"][0].startswith(f"a run would wait for its target: http://127.0.0.1:{away}: ")


def test_a_check_names_the_address_of_an_embedder_that_is_away(away: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check"]) != 0
    said = capsys.readouterr().out
    assert f"the embedder at http://127.0.0.1:{away}/v1 is out of reach: ConnectError" in said
    assert "hidden" not in said


def test_why_not_leads_to_why(capsys: pytest.CaptureFixture[str]) -> None:
    """`why` says of what has no row whether it failed, is left out or was never seen (`test_lineage_commands`)."""
    assert main(["why-not", "docs/one.md"]) == 64
    assert "Did you mean 'why'?" in capsys.readouterr().err
