"""The command line as `python -m instep`. A Ctrl-C during its start is kept until the command line can answer it."""

import os
import sys

# Python puts the current folder first, where files of a project could stand in for libraries; `os` is loaded already.
try:
    if not sys.flags.safe_path and sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib may stand there
        del sys.path[0]
except FileNotFoundError:
    pass  # The current folder is gone: nothing stands there.

import atexit
import signal

#: The exit code, once it is known.
_codes: list[int] = []


def main() -> int:
    """Run one command; returns its exit code."""
    atexit.register(_end_at_once)
    _codes[:] = [_run()]
    return _codes[0]


def _run() -> int:
    """Run one command, and keep Ctrl-C while it is imported: Python prints a traceback for an interrupt then, or drops
    it, and imports take a third of a second.
    """
    early: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, lambda number, _: early.append(number))

    from instep.cli import main as command_line
    from instep.cli.exit_codes import report

    try:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)
        if not early:
            return command_line()
    except KeyboardInterrupt:
        pass  # Just before the command began, or just after it ended.
    return report(KeyboardInterrupt(), as_json="--json" in sys.argv)


def _end_at_once() -> None:
    """End the process without its interpreter, if a thread is still at work: one that is in a library asks for an
    interpreter that is not there any more, and the process crashes in place of its exit code. Registered first, this
    comes last.
    """
    import threading
    from contextlib import suppress

    if _codes and threading.active_count() > 1:
        for each in filter(None, (sys.stdout, sys.stderr)):
            with suppress(OSError, ValueError):  # Nobody reads it any more.
                each.flush()
        os._exit(_codes[0])


if __name__ == "__main__":
    sys.exit(main())
