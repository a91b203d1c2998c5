"""`instep init` and `instep schema`."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from instep.cli import main
from instep.cli.project import project_name
from instep.project import json_schema, load_project
from tests.project.declared import documents, files


def test_the_file_written_is_a_project_that_works_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "My docs & more"
    assert main(["init", str(folder)]) == 0
    project = load_project(folder)
    assert project.name == "My-docs-more"
    assert files(project).path == (str(folder),)
    assert project.ledger_url == f"sqlite:///{folder}/.instep/ledger.db"
    assert capsys.readouterr().out.splitlines()[-1] == f"next: instep run --project '{folder}'"


@pytest.mark.parametrize("missing", [None, "wordllama", "tokenizers"])
def test_it_proposes_the_model_that_comes_in_a_wheel_where_that_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, missing: str | None
) -> None:
    monkeypatch.setattr("instep.cli.project.find_spec", lambda name: None if name == missing else object())
    assert main(["init", str(tmp_path)]) == 0
    embed = documents(load_project(tmp_path)).embed
    told = "pip install 'instep[static]'" in capsys.readouterr().out
    assert (embed.type, told) == (("hashing", True) if missing else ("static", False))


def test_commented_settings_are_valid_too(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    file = tmp_path / "instep.yaml"
    text = file.read_text()
    spark = "# spark:\n#   master:"
    model = "    #   embed:\n    #     type: openai"
    assert spark in text
    assert model in text
    before, rest = text.split("    #   embed:\n")
    commented, after = rest.split("    embed: {type: static")
    uncommented = "".join(line.replace("    #   ", "    ", 1) + "\n" for line in commented.splitlines())
    text = f"{before}    embed:\n{uncommented}    # {after}"
    assert "  # Commit:\n  #   source:" in text
    text = re.sub(r"^  # (Commit:|  )", r"  \1", text, flags=re.MULTILINE)
    file.write_text(re.sub(r"^# (spark:|  )", r"\1", text, flags=re.MULTILINE))
    project = load_project(tmp_path, environment={"OPENAI_API_KEY": "k"})
    assert documents(project).embed.type == "openai"
    assert project.spark.config == {"spark.driver.memory": "2g"}
    assert project.entities["Commit"].source.type == "spark"


def test_the_default_of_dir_is_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    assert load_project().root == tmp_path
    assert "next: instep run\n" in capsys.readouterr().out


def test_an_existing_file_is_kept_unless_forced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "instep.yaml"
    file.write_text("mine")
    assert main(["init", str(tmp_path)]) == 1
    assert file.read_text() == "mine"
    assert "--force" in capsys.readouterr().err
    assert main(["init", str(tmp_path), "--force"]) == 0
    assert load_project(tmp_path).entities


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["init", str(tmp_path / "file")]) == 1
    assert "is a file, not a folder" in capsys.readouterr().err


def test_init_makes_git_ignore_the_state_once(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    (tmp_path / ".gitignore").write_bytes(b"*.pyc")
    (tmp_path / "sub").mkdir()
    assert main(["init", str(tmp_path)]) == 0
    assert main(["init", str(tmp_path), "--force"]) == 0
    assert main(["init", str(tmp_path / "sub")]) == 0
    assert (tmp_path / ".gitignore").read_text() == "*.pyc\n.instep/\n"
    assert not (tmp_path / "sub" / ".gitignore").exists()


def test_outside_of_git_nothing_else_is_written(tmp_path: Path) -> None:
    main(["init", str(tmp_path)])
    assert [each.name for each in tmp_path.iterdir()] == ["instep.yaml"]


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("docs", "docs"),
        ("a b", "a-b"),
        ("2024", "project-2024"),
        ("true", "project-true"),
        ("ü", "project"),
        ("x" * 200, "x" * 100),
    ],
)
def test_names_of_projects_come_from_the_folder(folder: str, name: str) -> None:
    assert project_name(Path("/") / folder) == name


def test_init_answers_in_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": str(tmp_path / "instep.yaml"),
        "gitignore": None,
        "next": f"instep run --project {tmp_path}",
    }


def test_schema_prints_the_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
