"""Every setting and every command is documented; what is documented exists."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

from instep.cli import application, main
from instep.project import json_schema

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json_schema()


def settings() -> set[tuple[str, str]]:
    """(model, key) of every setting."""
    parts: dict[str, Any] = {**SCHEMA["$defs"], "Project": SCHEMA}
    return {(model, key) for model, part in parts.items() for key in part.get("properties", {})}


def documented() -> set[tuple[str, str]]:
    """(model, key) of every row of the tables in configuration.md; the model stands in the heading's comment."""
    found: set[tuple[str, str]] = set()
    model = ""
    for line in (DOCS / "configuration.md").read_text().splitlines():
        heading = re.search(r"<!-- (\w+) -->", line)
        model = heading[1] if heading else model
        row = re.match(r"\| `(\w+)` \|", line)
        if row:
            found.add((model, row[1]))
    return found


def test_every_setting_is_documented_and_no_other() -> None:
    assert documented() == settings()


def all_commands() -> dict[str, Any]:
    """Every command by the words it is called with: `run`, `job stop`."""
    whole = application()
    found = {str(command.name): command for command in whole.registered_commands}
    for group in whole.registered_groups:
        assert group.typer_instance is not None
        for command in group.typer_instance.registered_commands:
            found[f"{group.typer_instance.info.name} {command.name}"] = command
    return found


def commands_page() -> str:
    """The page as it should be: an introduction by hand, then the help of each command."""
    introduction = (DOCS / "commands.md").read_text().partition("\n## `instep")[0]
    sections = [f"## `instep {name}`\n\n```text\n{shown_help(name)}\n```\n" for name in all_commands()]
    return "\n".join([introduction.rstrip() + "\n", *sections])


def shown_help(command: str) -> str:
    """As in a terminal of 100 columns. In this process: fifty starts of Python would take twenty times as long."""
    shown = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(shown):
        patch.setenv("COLUMNS", "100")
        assert main([*command.split(), "--help"]) == 0
    return shown.getvalue().strip()


def test_the_page_of_commands_shows_their_help() -> None:
    assert (DOCS / "commands.md").read_text() == commands_page(), "run: python -m tests.docs.test_documented"


@pytest.mark.parametrize("name", all_commands())
def test_every_command_has_examples_and_json(name: str) -> None:
    command = all_commands()[name]
    assert "Examples:" in (command.callback.__doc__ or "")
    assert "as_json" in command.callback.__annotations__


if __name__ == "__main__":
    (DOCS / "commands.md").write_text(commands_page())
