"""Exit codes, and errors as text and JSON. Users never see a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from enum import IntEnum
from pathlib import Path
from typing import Any

from instep.domain.texts import hidden
from instep.error_transport import explained
from instep.errors import Conflict, Fenced, InstepError, Transient, Unknown, UserError
from instep.own_faults import own_fault


class ExitCode(IntEnum):
    """Exit codes of the process."""

    OK = 0
    #: It did not work; the message says why.
    ERROR = 1
    #: `instep plan`: a run would change something. Of what only compares (`instep diff`, for example): there is a
    #: difference.
    CHANGES = 2
    #: `instep run`: finished, and some documents failed (see `instep failures`), not all of a source could be seen,
    #: a build is held back, or a target does not hold what is recorded (see `instep diff`).
    FAILURES = 3
    #: Wrong use of the command line (EX_USAGE of sysexits.h).
    USAGE = 64
    #: Another run holds the entity, or ledger, target or Spark are away (EX_TEMPFAIL).
    BUSY = 75
    INTERRUPTED = 130


_NEXT: dict[type[InstepError], str] = {
    Transient: "This may pass: run the same command again.",
    Conflict: "Another process changed the same thing: run the same command again.",
    Fenced: "Another run took this work over and continues it; see `instep status`.",
    Unknown: "It is not known whether this took effect; the next run looks it up.",
}


def report(error: BaseException, *, as_json: bool) -> ExitCode:
    """Tell the user; returns the exit code."""
    if os.environ.get("INSTEP_DEBUG"):
        traceback.print_exception(error)
    if isinstance(error, FileNotFoundError) and _folder_is_gone():
        error = UserError("the current folder was deleted", hint="Change to another one: cd ..")
    if isinstance(error, Exception):
        error = explained(own_fault(error) or error)
    if _is_interrupt(error):
        return _say("stopped; run again to resume", {"kind": "Interrupted"}, as_json, ExitCode.INTERRUPTED)
    if isinstance(error, UserError):
        details = {"kind": type(error).__name__, "where": error.where, "hint": error.hint}
        return _say(error.what, details, as_json, ExitCode(error.exit_code))
    if isinstance(error, InstepError):
        hint = next((text for kind, text in _NEXT.items() if isinstance(error, kind)), None)
        code = ExitCode.BUSY if isinstance(error, Transient) else ExitCode.ERROR
        return _say(str(error), {"kind": type(error).__name__, "hint": hint}, as_json, code)
    return _unexpected(error, as_json)


def _folder_is_gone() -> bool:
    try:
        os.getcwd()  # noqa: PTH109
    except FileNotFoundError:
        return True
    return False


def _is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C. Pydantic makes an error of its own of that while it builds a model, at an import."""
    return isinstance(error, KeyboardInterrupt) or (
        not isinstance(error, InstepError) and str(error).rstrip().endswith("KeyboardInterrupt:")
    )


def report_usage(message: str, hint: str | None, *, as_json: bool) -> ExitCode:
    return _say(message, {"kind": "Usage", "hint": hint}, as_json, ExitCode.USAGE)


def _unexpected(error: BaseException, as_json: bool) -> ExitCode:
    """The message itself stays in the log: other libraries may put secrets into theirs."""
    log = None if os.environ.get("INSTEP_DEBUG") else _write_log(error)
    hint = f"Please report this with the details in {log}." if log else "Set INSTEP_DEBUG=1 to see the details."
    message = f"unexpected {type(error).__name__}"
    return _say(message, {"kind": "Unexpected", "log": log, "hint": hint}, as_json, ExitCode.ERROR)


def _write_log(error: BaseException) -> str | None:
    """A file that only this user can read; None when no file can be written."""
    text = "".join(traceback.format_exception(error))
    try:
        handle, name = tempfile.mkstemp(f"-{time.strftime('%Y%m%d-%H%M%S')}.log", "instep-error-", _log_folder())
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"{' '.join(sys.argv[:2])}\n{hidden(text)}")
    except OSError:
        return None
    return name


def _log_folder() -> Path | None:
    """`.instep` if it is here already (nothing is created for an error), else the system's place."""
    state = Path.cwd() / ".instep"
    return state if state.is_dir() and os.access(state, os.W_OK) else None


def _say(message: str, details: Mapping[str, Any], as_json: bool, code: ExitCode) -> ExitCode:
    message = hidden(message)
    details = {key: hidden(value) if isinstance(value, str) else value for key, value in details.items()}
    where, hint = details.get("where"), details.get("hint")
    text = f"{where}: {message}" if where else message
    prefix = "" if code is ExitCode.INTERRUPTED else "error: "
    lines = [f"{prefix}{text}", *([f"hint: {hint}"] if hint else [])]
    print("\n".join(lines), file=sys.stderr, flush=True)
    if as_json:
        shown = {"message": message, **{key: value for key, value in details.items() if value is not None}}
        print(json.dumps({"error": {**shown, "exit_code": int(code)}}, indent=2), flush=True)
    return code
