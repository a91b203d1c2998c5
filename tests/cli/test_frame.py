"""What all commands share: exit codes, errors, output, progress."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest
import typer
from rich.console import Console

import instep
from instep.cli import app, application, main
from instep.cli.exit_codes import ExitCode
from instep.cli.log_progress import Lines
from instep.cli.options import JsonOption
from instep.cli.output import Output
from instep.cli.signals import terminate_like_ctrl_c
from instep.domain.texts import cleaned
from instep.entities.partitions import QueuesAlone
from instep.errors import Conflict, Fenced, InstepError, Transient, Unknown, UserError
from instep.telemetry.bar_progress import Bars
from instep.telemetry.texts import cell_text, seconds_text, visible

Act = Callable[[], None]
Install = Callable[[Act], None]


@pytest.fixture
def command() -> Iterator[Install]:
    """Adds a command `act` to the real application for one test."""
    before = list(app.registered_commands)

    def install(act: Act) -> None:
        def run(as_json: JsonOption = False) -> None:
            act()

        app.command("act")(run)

    yield install
    app.registered_commands[:] = before


def raising(error: BaseException) -> Act:
    def act() -> None:
        raise error

    return act


def test_success_is_zero(command: Install) -> None:
    command(lambda: None)
    assert main(["act"]) == 0


@pytest.mark.parametrize("code", [ExitCode.CHANGES, ExitCode.FAILURES])
def test_commands_may_say_more_than_yes_and_no(command: Install, code: ExitCode) -> None:
    command(raising(typer.Exit(code)))
    assert main(["act"]) == code


def test_a_user_error_is_reported_without_a_traceback(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(UserError("it is wrong", where="instep.yaml:3", hint="Mend it.")))
    assert main(["act"]) == 1
    out, err = capsys.readouterr()
    assert (out, err) == ("", "error: instep.yaml:3: it is wrong\nhint: Mend it.\n")


def test_a_user_error_may_have_an_exit_code_of_its_own(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(QueuesAlone(["salts"])))
    assert main(["act"]) == ExitCode.USAGE
    capsys.readouterr()
    assert main(["act", "--json"]) == ExitCode.USAGE
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == ExitCode.USAGE


def test_with_json_the_error_is_json_too(command: Install, capsys: pytest.CaptureFixture[str]) -> None:
    command(raising(UserError("it is wrong", where="instep.yaml:3", hint="Mend it.")))
    assert main(["act", "--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": {
            "message": "it is wrong",
            "kind": "UserError",
            "where": "instep.yaml:3",
            "hint": "Mend it.",
            "exit_code": 1,
        }
    }
    assert err.startswith("error: ")


@pytest.mark.parametrize(("kind", "code"), [(Transient, 75), (Conflict, 1), (Fenced, 1), (Unknown, 1)])
def test_errors_of_instep_hold_a_hint(
    command: Install, capsys: pytest.CaptureFixture[str], kind: type[InstepError], code: int
) -> None:
    command(raising(kind("the ledger is away")))
    assert main(["act"]) == code
    message, hint = capsys.readouterr().err.splitlines()
    assert message == "error: the ledger is away"
    assert hint.startswith("hint: ")


def test_an_unexpected_error_leaves_its_traceback_in_a_private_file(
    command: Install, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".instep").mkdir()
    command(raising(ZeroDivisionError("password of-no-other-test")))
    assert main(["act", "--json"]) == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert "of-no-other-test" not in out + err
    log = Path(json.loads(out)["error"]["log"])
    assert log.parent == tmp_path / ".instep"
    assert log.stat().st_mode & 0o777 == 0o600
    assert "ZeroDivisionError: password of-no-other-test" in log.read_text()


def test_debugging_shows_the_traceback(
    command: Install, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSTEP_DEBUG", "1")
    command(raising(UserError("it is wrong")))
    assert main(["act"]) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), ValueError('Error building "model":\n  KeyboardInterrupt: ')],
    ids=["plain", "pydantic"],
)
def test_an_interrupt_says_how_to_continue(
    command: Install, capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    command(raising(error))
    assert main(["act"]) == 130
    assert capsys.readouterr().err == "stopped; run again to resume\n"


@pytest.mark.parametrize("args", [["act", "--jsn"], ["nonsense"], ["init", "a", "b"], ["--nonsense"]])
def test_wrong_use_is_64_so_that_2_keeps_its_meaning(
    command: Install, capsys: pytest.CaptureFixture[str], args: list[str]
) -> None:
    command(lambda: None)
    assert main(args) == 64
    out, err = capsys.readouterr()
    assert out == ""
    assert "--help`" in err


def test_json_after_a_double_dash_is_an_argument(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["init", str(tmp_path / "x"), "y", "--", "--json"]) == 64
    assert capsys.readouterr().out == ""


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "Exit codes:" in capsys.readouterr().out


def test_the_exit_codes_are_in_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    listed = capsys.readouterr().out.split("Exit codes:")[1]
    assert [code for code in ExitCode if f"\n    {int(code)} " not in listed] == []


def test_a_closed_pipe_is_quiet() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "instep", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    errors = process.stderr.read()
    process.stderr.close()
    assert process.wait() == 1
    assert errors == ""


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_as_good_as_none(tmp_path: Path, closed: str) -> None:
    """A daemon may close them; the files that a command opens must not take their numbers."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\ntext\n")
    assert main(["init", str(tmp_path)]) == 0
    command = f"'{sys.executable}' -m instep run --quiet {closed}; echo $? >&9"
    done = subprocess.run(
        ["bash", "-c", f"exec 9>code; {command}"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (tmp_path / "code").read_text() == "0\n"
    assert "error" not in done.stdout + done.stderr
    (status,) = instep.load(tmp_path).status()
    assert status.state == "Indexed"


def test_a_full_disk_is_no_traceback() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123 -- a device
        done = subprocess.run(
            [sys.executable, "-m", "instep", "schema"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def test_in_a_folder_that_was_deleted_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    script = "cd $0; rmdir $0; $1 --version; exec $1 status"
    done = subprocess.run(
        ["sh", "-c", script, tmp_path / "gone", Path(sys.executable).with_name("instep")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split()[0]) == (ExitCode.ERROR, "instep")
    assert done.stderr == "error: the current folder was deleted\nhint: Change to another one: cd ..\n"


def test_ctrl_c_ends_a_real_process_with_130(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "instep.yaml")
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import instep.cli as c, sys; print('up', flush=True); sys.exit(c.main(['check', '-p', 'instep.yaml']))",
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    # Opening the other end returns once the command has begun to read the project.
    with (tmp_path / "instep.yaml").open("w"):
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (130, "stopped; run again to resume\n")


#: For `sitecustomize`: Ctrl-C while the command line is imported, where Python hands it to no one.
_INTERRUPTED_IMPORT = """
import signal, sys
class Interrupting:
    def find_spec(self, name, path, target=None):
        if name == "instep.cli.%s":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("imported", ["exit_codes", "project"])
@pytest.mark.parametrize("started", ["module", "script"])
def test_ctrl_c_while_the_command_line_is_imported_is_answered_too(started: str, imported: str, tmp_path: Path) -> None:
    """While all commands need it, and while this one does."""
    (tmp_path / "sitecustomize.py").write_text(_INTERRUPTED_IMPORT % imported)
    described = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    module, function = described["project"]["scripts"]["instep"].split(":")
    script = f"import sys; from {module} import {function}; sys.exit({function}())"  # As installers write it.
    done = subprocess.run(
        [sys.executable, *(["-m", "instep"] if started == "module" else ["-c", script]), "init", "new", "--json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "stopped; run again to resume\n")
    assert json.loads(done.stdout)["error"]["kind"] == "Interrupted"
    assert not (tmp_path / "new").exists()


def test_an_error_on_one_line_is_two_sentences() -> None:
    assert cleaned(str(UserError("the package x is not installed", hint="Install it"))) == (
        "the package x is not installed. Install it"
    )
    assert str(UserError("what is it?", where="a.py", hint="See there.")) == "a.py: what is it?\nSee there."


def test_names_that_the_terminal_cannot_show_are_no_crash(tmp_path: Path) -> None:
    code = "import instep.cli as c, sys; sys.exit(c.main(['init', 'caf\\u00e9/\\udcff', '--json']))"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, cwd=tmp_path, text=True, check=True
    )
    assert json.loads(done.stdout)["file"] == "caf\u00e9/\udcff/instep.yaml"
    assert done.stderr == ""


def test_a_result_is_one_json_value_or_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    for out in (Output(as_json=True), Output()):
        out.line("for people")
        out.result({"a": "é"}, partial(out.line, "shown"))
    text = capsys.readouterr().out
    assert text == '{\n  "a": "é"\n}\nfor people\nshown\n'


def test_tables_show_numbers_and_never_read_cells_as_markup(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table("Title", ["name", "rows"], [["[red]x[/red]", 1234567], ["a" * 100, None]])
    text = capsys.readouterr().out
    assert "[red]x[/red]" in text
    assert "1,234,567" in text
    assert "a" * 100 in text


def test_a_table_in_a_pipe_is_aligned_and_never_folded(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(None, ["name", "rows"], [["日本", 1234], ["x" * 300, None], ["two\nlines", 5]])
    assert capsys.readouterr().out.splitlines() == [
        "",
        " name" + " " * 299 + " rows",
        " " + "─" * 308,
        " 日本" + " " * 299 + "1,234",
        " " + "x" * 300 + "       -",
        " two" + " " * 304 + "5",
        " lines",
        "",
    ]


def test_control_characters_are_made_visible() -> None:
    assert visible("a\x1b[2Jb\udcffé\n") == "a\\x1b[2Jb\\udcffé\n"


@pytest.mark.parametrize(("value", "text"), [(None, "-"), (True, "yes"), (1234, "1,234"), (1.26, "1.3"), ("x", "x")])
def test_cells(value: object, text: str) -> None:
    assert cell_text(value) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.44, "0.4 s"), (12.4, "12 s"), (59.7, "1 min 0 s"), (200, "3 min 20 s"), (7500, "2 h 5 min")],
)
def test_durations(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text


def test_progress_in_a_log_is_a_line_now_and_then() -> None:
    now = [0.0]
    stream = io.StringIO()
    lines = Lines(stream, lambda: now[0])
    lines.begin("Document", 1000, "document")
    for second in range(1, 25):
        now[0] = float(second)
        lines.advance("Document", 20)
    lines.end("Document")
    lines.begin("Letter", 30, "document")
    lines.advance("Letter", 30)
    lines.end("Letter")
    assert stream.getvalue().splitlines() == [
        "Document: 1,000 documents to do",
        "Document: 200 of 1,000 documents, 20/s, 40 s left",
        "Document: 400 of 1,000 documents, 20/s, 30 s left",
        "Document: 480 of 1,000 documents in 24 s",
        "Letter: 30 documents to do",
        "Letter: done in 0.0 s",
    ]


def test_progress_without_a_total_shows_the_count() -> None:
    now = [0.0]
    stream = io.StringIO()
    lines = Lines(stream, lambda: now[0])
    lines.begin("Ticket", None, "row")
    now[0] = 10.0
    lines.advance("Ticket", 30)
    lines.end("Ticket")
    assert stream.getvalue().splitlines() == [
        "Ticket: rows are read",
        "Ticket: 30 rows, 3/s",
        "Ticket: 30 rows in 10 s",
    ]
    stream = io.StringIO()
    with Bars(Console(file=stream, force_terminal=True, width=120)) as bars:
        bars.begin("Ticket", None, "row")
        bars.advance("Ticket", 30)
        bars.end("Ticket")
    assert "30/30" in stream.getvalue()


def test_progress_is_silent_with_json_and_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    for out in (Output(as_json=True), Output(quiet=True)):
        with out.progress() as progress:
            progress.begin("Document", 1, "document")
            progress.advance("Document", 1)
            progress.end("Document")
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_progress_is_lines_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    with Output().progress() as progress:
        progress.begin("Document", 2, "document")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "Document: 2 documents to do\n")


def test_bars_count_every_unit_from_many_threads() -> None:
    stream = io.StringIO()
    with Bars(Console(file=stream, force_terminal=True, width=120)) as bars:
        bars.listing("Document", 5)
        bars.begin("Document", 4000, "document")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: bars.advance("Document", 1), range(4000)))
        bars.say("Document", "[bold]indexing")
        bars.end("Document")
    assert "4000/4000" in stream.getvalue()


def test_the_help_lists_every_command_in_a_panel_and_few_in_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--help"])
    shown = capsys.readouterr().out
    panels = ["Every day:", "Looking deeper:", "Servers:", "Queues:", "Upkeep:"]
    places = [shown.index(f"\n{panel}\n") for panel in panels]
    assert places == sorted(places)
    every_day = shown[places[0] : places[1]].split("\n")[2:]
    assert [line.split()[0] for line in every_day if line] == [
        "init", "check", "plan", "run", "status", "search", "diff", "failures",
    ]  # fmt: skip
    listed = {line.split()[0] for line in shown[places[0] :].splitlines() if line.startswith("  ")}
    whole = application()
    names = {each.name for each in whole.registered_commands}
    assert names | {each.typer_instance.info.name for each in whole.registered_groups if each.typer_instance} == listed


@pytest.mark.parametrize("group", [(), ("queue",), ("ledger",), ("letters",), ("namespace",)])
def test_a_command_is_described_in_one_line_of_a_small_terminal(
    group: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    main([*group, "--help"])
    listed = capsys.readouterr().out.rpartition("Options:")[2].splitlines()
    assert [line for line in listed if line.startswith("  ") and "  " in line.strip()]
    assert [line for line in listed if line.endswith("...")] == []


#: A command that leaves a thread behind, which is in a library for most of the time.
_BUSY = """
import sys, threading
import lance, pyarrow as pa
import instep.__main__, instep.cli
dataset = lance.write_dataset(pa.table({"id": range(20_000)}), sys.argv[1])
begun = threading.Event()
def look():
    while True:
        dataset.to_table(filter="id < 100")
        begun.set()
def command():
    threading.Thread(target=look, daemon=True).start()
    begun.wait()
    print("said")
    return 130
instep.cli.main = command
sys.exit(instep.__main__.main())
"""


def test_a_command_that_leaves_a_thread_behind_ends_with_its_exit_code(tmp_path: Path) -> None:
    """After Ctrl-C an index may be in work. The process was aborted, with a dump of its memory."""
    command = [sys.executable, "-P", "-c", _BUSY, str(tmp_path / "rows.lance")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert (done.stdout, done.returncode) == ("said\n", 130)


def test_an_interrupt_that_a_library_logs_prints_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    with terminate_like_ctrl_c():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            logging.exception("KeyboardInterrupt while sending command.")  # As Py4J does.
        logging.error("something else")
    # Threads that other tests left may log something, too.
    assert [each.getMessage() for each in caplog.records if each.name == "root"] == ["something else"]


def test_an_interrupt_that_a_library_logs_by_a_logger_of_its_own_prints_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # As in a process of ours: records go to the last resort.
    pool = logging.getLogger("sqlalchemy.pool.impl.QueuePool")
    with terminate_like_ctrl_c():
        try:
            signal.raise_signal(signal.SIGTERM)
        except KeyboardInterrupt:
            pool.exception("Exception during reset or similar")
        pool.error("something else")
    said = capsys.readouterr().err
    assert "something else" in said
    assert "Traceback" not in said
