"""`instep init|check|schema`: the project file, and whether a run has all it needs."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.exit_codes import ExitCode
from instep.cli.options import JsonOption, ProjectOption
from instep.cli.output import Output
from instep.errors import UserError
from instep.telemetry.texts import bytes_text

if TYPE_CHECKING:
    from instep.answers.doctor import Finding
    from instep.app import Instep

FILE_NAME = "instep.yaml"
STATE = ".instep/"


def init(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Folder to index.", show_default="this one")] = Path(),
    force: Annotated[
        bool, typer.Option("--force", help="Replace an existing instep.yaml.", show_default=False)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Write a commented instep.yaml that works as it is.

    It indexes the text files in DIR, embeds them offline and keeps everything in DIR/.instep, which
    is added to .gitignore when DIR is in a git repository.

    \b
    Examples:
      instep init
      instep init docs
      instep init docs --force
    """
    file = write_project(folder, force=force)
    ignored = ignore_state(folder)
    following = "instep run" if folder.resolve() == Path.cwd() else f"instep run --project {shlex.quote(str(folder))}"
    out = Output(as_json=as_json)

    def show() -> None:
        out.line(f"wrote {file}")
        if ignored:
            out.line(f"added {STATE} to {ignored}")
        if not has_static_model():
            out.line("for search by meaning: pip install 'instep[static]', then embed: {type: static} in that file")
        out.line(f"next: {following}")

    out.result({"file": str(file), "gitignore": str(ignored) if ignored else None, "next": following}, show)


def write_project(folder: Path, *, force: bool) -> Path:
    """Write the template; returns its path. Raises `UserError` when it is there, or cannot be written."""
    file = folder / FILE_NAME
    template = resources.files("instep.cli").joinpath("templates", FILE_NAME).read_text(encoding="utf-8")
    text = template.replace("name: my-project", f"name: {project_name(folder)}", 1)
    if not has_static_model():
        text = text.replace("    embed: {type: static}", "    embed: {type: hashing, dimensions: 384}", 1)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("w" if force else "x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        if folder.is_dir():
            raise UserError("exists already", where=str(file), hint="Replace it with --force.") from None
        raise UserError("is a file, not a folder", where=str(folder)) from None
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(file)) from None
    return file


def has_static_model() -> bool:
    """Whether the embedder `static` works here."""
    return all(find_spec(each) for each in ("wordllama", "tokenizers", "safetensors"))


def project_name(folder: Path) -> str:
    """The folder's name, as far as it can name a project. Never one that YAML reads as something else."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", folder.resolve().name).strip("-._")[:100]
    return (
        name
        if re.match(r"(?i)[a-z]", name) and name.lower() not in ("true", "false", "null")
        else f"project-{name}".rstrip("-")[:100]
    )


def ignore_state(folder: Path) -> Path | None:
    """Add `.instep/` to the folder's .gitignore; None when it need not be, or cannot be."""
    above = [folder.resolve(), *folder.resolve().parents]
    top = next((index for index, each in enumerate(above) if (each / ".git").exists()), None)
    if top is None or any(_ignores(each / ".gitignore") for each in above[: top + 1]):
        return None
    file = folder / ".gitignore"
    try:
        before = file.read_bytes() if file.exists() else b""
        gap = b"" if not before or before.endswith(b"\n") else os.linesep.encode()
        with file.open("ab") as out:
            out.write(gap + STATE.encode() + b"\n")
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror}", where=str(file), hint=f"Add {STATE} to it.") from None
    return file


def _ignores(file: Path) -> bool:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    return any(line.strip() in (STATE, STATE.rstrip("/")) for line in lines)


def check(
    project: ProjectOption = None,
    cluster: Annotated[
        bool,
        typer.Option("--cluster", help="Ask each executor of Spark what it has and reaches.", show_default=False),
    ] = False,
    spark: Annotated[
        bool, typer.Option("--spark", help="Start Spark, even if documents do not need it.", show_default=False)
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Validate the project and what a run needs.

    Java, Spark, ledger, targets, sources, embedders and queues are tried.

    It starts Spark and runs a job on it when tables, a transform or `engine: spark` need it, when the project has a
    section `spark`, or with --spark. The first time that leaves an archive of Spark's classes in the user's cache (150
    MB), which makes later starts twice as fast. Exits with 1 when something is missing, and with 75 when something is
    only out of reach for now.

    With --cluster a task on each executor of Spark says which versions it has and how much memory, reads one document
    of each source, and writes a row into an index in each target that is made for this and dropped afterwards.

    \b
    Examples:
      instep check
      instep check --spark
      instep check --cluster
      instep check --project docs --json
    """
    from instep.app import load

    out = Output(as_json=as_json, quiet=as_json)
    opened = load(project)
    if cluster:
        _check_cluster(opened, out)
        return
    if spark or opened.starts_spark:
        out.note("Starting Spark to see that it works (up to a minute the first time, seconds later) …")
    with out.answering():
        findings = opened.check(spark=spark)
    out.result(findings, lambda: _show(findings, out))
    _exit(findings)


def _check_cluster(opened: Instep, out: Output) -> None:
    out.note("Asking the executors of Spark, which may have to start first …")
    state = opened.check_cluster()

    def show() -> None:
        out.table(
            f"Executors of {state.spark}",
            ["host", "process", "python", "libraries", "memory", "free", "sources", "targets"],
            [
                [
                    each.host,
                    str(each.process),
                    each.python,
                    _libraries(each.versions),
                    bytes_text(each.memory) if each.memory else None,
                    bytes_text(each.free) if each.free else None,
                    ", ".join(f"{name} {word}" for name, word in each.sources.items()),
                    ", ".join(f"{name} {word}" for name, word in each.targets.items()),
                ]
                for each in state.executors
            ],
        )
        _show(state.findings, out)
        if not state.findings:
            number = len(state.executors)
            out.line(f"{number} executor{'s have' if number > 1 else ' has'} all that tasks need")

    out.result(state, show)
    _exit(state.findings)


def _libraries(versions: Mapping[str, str | None]) -> str:
    """Those that matter most, which come first, and those that are missing."""
    last = list(versions).index("pyarrow")
    shown = (f"{name} {version}" for at, (name, version) in enumerate(versions.items()) if version and at <= last)
    return ", ".join([*shown, *(f"{name} missing" for name, version in versions.items() if version is None)])


def _show(findings: Sequence[Finding], out: Output) -> None:
    marks = {"ok": "✓", "warning": "!", "problem": "✗"}
    for each in findings:
        out.line(f"{marks[each.health]} {each.subject}: {each.detail}")
        if each.hint:
            out.line(f"    {each.hint}")


def _exit(findings: Sequence[Finding]) -> None:
    """End with the code for what was found."""
    problems = [each for each in findings if each.health == "problem"]
    if problems:
        raise typer.Exit(ExitCode.BUSY if all(each.away for each in problems) else ExitCode.ERROR)


def schema(as_json: JsonOption = False) -> None:
    """Print the JSON Schema of instep.yaml, for editors.

    \b
    Examples:
      instep schema > instep.schema.json
      # then, as the first line of instep.yaml:
      # yaml-language-server: $schema=instep.schema.json
    """
    from instep.project import json_schema

    Output(as_json=True).result(json_schema(), lambda: None)
