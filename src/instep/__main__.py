"""The command line as `python -m instep`. A Ctrl-C during its start is kept until the command line can answer it."""

import os
import sys

# Python puts the current folder first, where files of a project could stand in for libraries; `os` is loaded already.
try:
    if not sys.flags.safe_path and sys.path and sys.path[0] == os.getcwd():  # noqa: PTH109 - pathlib may stand there
        del sys.path[0]
except FileNotFoundError:
    pass  # The current folder is gone: nothing stands there.

import signal


def main() -> int:
    """Run one command; returns its exit code.

    Python prints a traceback for an interrupt among imports, or drops it: those take a third of a second.
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


if __name__ == "__main__":
    sys.exit(main())
