"""`instep namespace delete`: delete a namespace in all entities."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from instep.cli.options import JsonOption, ProjectOption, QuietOption, user_text
from instep.cli.output import Output
from instep.domain.texts import amount
from instep.errors import UserError

if TYPE_CHECKING:
    from instep.jobs.namespaces import Deletion

app = typer.Typer(name="namespace")


@app.callback(invoke_without_command=True)
def namespace(context: typer.Context) -> None:
    """Delete a namespace."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command("delete")
def delete(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A namespace, such as 42/9970.", show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.", show_default=False)] = False,
    project: ProjectOption = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Delete everything of a namespace, and of those in it.

    These are rows, checkpoints and status, in all entities.

    Sources are left alone, and what is asked for again is indexed again. When it was interrupted, run it again: it
    does the rest. While a job works on the namespace it deletes nothing (exit code 75).

    \b
    Examples:
      instep namespace delete 42/9970
      instep namespace delete 42/9970 --yes --json
    """
    from instep.answers.results import deletion_answer
    from instep.app import load

    opened, out = load(project), Output(as_json=as_json, quiet=quiet)
    if not yes and not _confirmed(opened.deletion(path)):
        raise typer.Abort
    with out.progress() as progress:
        done = opened.delete_namespace(path, by=user_text(), progress=progress)
    out.result(deletion_answer(done), lambda: out.line(f"Namespace {done.scope} is deleted: {_amounts(done)}."))
    if any(scope.path.startswith(done.scope.path) for scope in opened.project.scopes):
        out.note(f"`namespaces:` still lists {done.scope} or one in it: the next run or want indexes it again.")


def _confirmed(deletion: Deletion) -> bool:
    if not sys.stdin.isatty():
        raise UserError("no terminal to ask for confirmation", hint="Confirm with --yes.")
    question = f"Delete namespace {deletion.scope}, all its rows, {_amounts(deletion)}?"
    return bool(typer.confirm(question, err=True))


def _amounts(deletion: Deletion) -> str:
    parts = [
        amount(len(deletion.partitions), "partition"),
        amount(len(deletion.keys), "status key"),
        *([amount(len(deletion.wanted), "wanted partition")] if deletion.wanted else []),
        *([amount(len(deletion.letters), "dead letter")] if deletion.letters else []),
    ]
    return ", ".join(parts)
