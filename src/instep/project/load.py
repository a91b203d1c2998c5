"""Finds and reads `instep.yaml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from instep.domain.texts import hide
from instep.errors import UserError
from instep.project.models import Project
from instep.project.problems import InvalidProject, Problem, problems_of
from instep.project.secrets import secrets_of
from instep.project.yaml import YamlProblem, read_yaml, variables

FILE_NAME = "instep.yaml"


def load_project(path: Path | str | None = None, *, environment: Mapping[str, str] | None = None) -> Project:
    """The project declared in `path`: a file, or a folder that holds `instep.yaml`.

    Without `path`, the current folder and then its parents are searched. `environment` replaces
    the process's own for `${…}`. Raises `UserError` when there is no such file, and `InvalidProject`
    (with file and line) when it cannot be used.
    """
    file = find_project_file(path)
    shown = _shown(file)
    text = _read(file, shown)
    try:
        document = read_yaml(text, os.environ if environment is None else environment)
    except YamlProblem as error:
        dotted = ".".join(map(str, error.path))
        raise InvalidProject(shown, [Problem(error.line, dotted, error.message)], error.hint) from None
    if not isinstance(document.data, dict):
        problem = Problem(document.lines[()], "", "must be a mapping (lines of `key: value`)")
        raise InvalidProject(shown, [problem])
    if "root" in document.data:
        message = "unknown key; the folder of the file is the root of its relative paths"
        raise InvalidProject(shown, [Problem(document.lines["root",], "root", message)])
    try:
        project = Project.model_validate({**document.data, "root": file.parent})
    except ValidationError as error:
        raise InvalidProject(shown, problems_of(error, document)) from None
    hide(secrets_of(project, document.filled))
    return project


def declared_at(project: Project, *path: str) -> str | None:
    """File and line where a project declares this; None if it does so nowhere, or in Python."""
    try:
        file = find_project_file(project.root)
        line = read_yaml(_read(file, str(file)), os.environ).lines.get(path)
    except (UserError, YamlProblem):
        return None
    return None if line is None else f"{_shown(file)}:{line}"


def environment_used(project: Project, environment: Mapping[str, str]) -> dict[str, str]:
    """The values, by name, that the file of a project takes from the environment; none of one declared in Python."""
    try:
        file = find_project_file(project.root)
        return variables(_read(file, str(file)), environment)
    except UserError:
        return {}


def find_project_file(path: Path | str | None = None) -> Path:
    """Absolute path of the project file. Raises `UserError` when there is none."""
    if path is None:
        here = Path.cwd()
        for folder in (here, *here.parents):
            if (folder / FILE_NAME).is_file():
                return folder / FILE_NAME
        message = f"no {FILE_NAME} in this folder or the ones above it"
        raise UserError(message, where=str(here), hint="Write one with `instep init`, or name one with --project.")
    given = Path.cwd() / Path(path).expanduser()
    file = given / FILE_NAME if given.is_dir() else given
    if not file.exists():
        hint = f"Write one with `instep init {path}`." if given.is_dir() else "Check the path given with --project."
        raise UserError("no such project file", where=_shown(file), hint=hint)
    return file


def _read(file: Path, shown: str) -> str:
    try:
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", where=shown) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidProject(shown, [Problem(line, "", "not UTF-8 text")]) from None


def _shown(file: Path) -> str:
    """Relative to the current folder if it is below it."""
    try:
        return str(file.relative_to(Path.cwd()))
    except ValueError:
        return str(file)
