"""The command line: exit codes, options, and what is printed."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

_COMMANDS = ("tests/cli/test_commands.py",)
_FRAME = ("tests/cli/test_frame.py",)
_FAILURES = ("tests/cli/test_job_commands.py::test_the_newest_failures_are_listed_as_many_as_were_asked_for",)
_JOBS = ("tests/cli/test_job_commands.py", "tests/cli/test_job_answers.py")

MUTANTS = [
    Mutant(
        "a run in which documents failed exits with 0",
        "jobs/entity_result.py",
        "        with_errors = self.counts.failed > 0 or self.state is JobState.COMPLETED_WITH_ERRORS\n",
        "        with_errors = False\n",
        _COMMANDS,
    ),
    Mutant(
        "a plan with changes exits with 0",
        "cli/plan.py",
        "    if any(each.pending for each in plans):\n        raise typer.Exit",
        "    if all(each.kind is None for each in plans):\n        raise typer.Exit",
        _COMMANDS,
    ),
    Mutant(
        "a diff that finds something exits with 0",
        "cli/diff.py",
        "    if any(each.differs for each in found):\n        raise typer.Exit(ExitCode.CHANGES)\n",
        "",
        ("tests/jobs/test_diff.py",),
    ),
    Mutant(
        "an outage exits as a mistake does",
        "cli/exit_codes.py",
        "code = ExitCode.BUSY if isinstance(error, Transient) else ExitCode.ERROR",
        "code = ExitCode.ERROR",
        (*_FRAME, "tests/cli/test_ledger_away.py"),
    ),
    Mutant(
        "the exit code of a user's mistake is not its own",
        "cli/exit_codes.py",
        "return _say(error.what, details, as_json, ExitCode(error.exit_code))",
        "return _say(error.what, details, as_json, ExitCode.ERROR)",
        (*_FRAME, "tests/cli/test_job_commands.py"),
    ),
    Mutant(
        "an unexpected error shows its message",
        "cli/exit_codes.py",
        'message = f"unexpected {type(error).__name__}"',
        'message = f"unexpected {type(error).__name__}: {error}"',
        _FRAME,
    ),
    Mutant(
        "with --json errors are text alone",
        "cli/exit_codes.py",
        "    if as_json:\n        shown = ",
        "    if not as_json:\n        shown = ",
        _FRAME,
    ),
    Mutant(
        "a saved plan is run without the options that it was made with",
        "cli/run.py",
        "            **(saved.options if saved else options),\n",
        "            **options,\n",
        _COMMANDS,
    ),
    Mutant(
        "a saved plan takes other options beside its own",
        "cli/run.py",
        "    if saved and chosen:\n",
        "    if saved and not saved.digests:\n",
        (*_COMMANDS, "tests/cli/test_bus_commands.py"),
    ),
    Mutant(
        "a saved plan is run though the world has moved",
        "cli/run.py",
        "expected=saved.digests if saved else None,",
        "expected=None,",
        _COMMANDS,
    ),
    Mutant(
        "a plan of another format is run",
        "cli/plan.py",
        '        if value["format"] != _FORMAT:\n',
        '        if not value["format"]:\n',
        _COMMANDS,
    ),
    Mutant(
        "the limit of a search is the default",
        "cli/search.py",
        "among(limit=limit,",
        "among(limit=10,",
        _COMMANDS,
    ),
    Mutant(
        "a search by command looks into every entity",
        "cli/search.py",
        "            entities=entity,\n",
        "            entities=None,\n",
        _COMMANDS,
    ),
    Mutant(
        "failures are listed without the limit",
        "cli/failures.py",
        "opened.failures(entities, limit=limit)",
        "opened.failures(entities)",
        _FAILURES,
    ),
    Mutant(
        "failures are listed of all entities, whichever were named",
        "app/instep.py",
        "refs = None if entities is None else [setup.ref for setup in container.setups(entities)]",
        "refs = None",
        _FAILURES,
    ),
    Mutant(
        "letters are dropped when none was named",
        "cli/letters.py",
        "    if bool(refs) == everything:\n",
        "    if refs and everything:\n",
        ("tests/cli/test_bus_commands.py",),
    ),
    Mutant(
        "a stop does not wait",
        "cli/jobs.py",
        'reason=f"stopped by {user_text()}", wait=wait)',
        'reason=f"stopped by {user_text()}", wait=False)',
        _JOBS,
    ),
    Mutant(
        "a retry of a job retries its entities without what failed",
        "app/instep.py",
        "names, retry_failures=True, generation=generation, engine=engine, wait=wait, progress=progress",
        "names, retry_failures=False, generation=generation, engine=engine, wait=wait, progress=progress",
        _JOBS,
    ),
    Mutant(
        "what a want says of being fresh is not passed on",
        "app/wants.py",
        "fresh_within=None if fresh_within is None else round(fresh_within.total_seconds() * 1000),",
        "fresh_within=None if fresh_within is None else round(fresh_within.total_seconds()),",
        ("tests/cli/test_want_commands.py",),
    ),
    Mutant(
        "what has ended is among the wants that wait",
        "app/wants.py",
        "open_only=not ended, after=after, limit=limit)",
        "open_only=False, after=after, limit=limit)",
        ("tests/cli/test_want_commands.py",),
    ),
]
