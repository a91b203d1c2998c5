"""A shell for the commands of a page: in this process where that is possible, for a start of Python takes long."""

from __future__ import annotations

import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from instep.cli import main
from tests.docs.page import ROOT, Command

#: They serve until they are told to stop.
_SERVES: Final = re.compile(r"(?:^|\) )instep (?:serve|mcp)\b")
_PLAIN: Final = re.compile(r"^instep (?P<words>[^|&;$`<>\\]*?)(?: < (?P<read>\S+))?(?: > (?P<write>\S+))?$")
_EXTRAS: Final = re.compile(r"^pip install (?:--upgrade )?'?(?P<package>[\w-]+)(?:\[(?P<extras>[\w,]+)\])?'?$")
_WORD: Final = re.compile(r"[A-Za-z]{3,}")


class _Stdin(io.TextIOWrapper):
    def __init__(self, text: str, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(text.encode()), encoding="utf-8")
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@dataclass
class Shell:
    """`replaced`: texts of the page, addresses above all, and what stands for them here. `codes`: what commands that
    begin so end with.
    """

    folder: Path
    stack: ExitStack
    replaced: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)
    codes: dict[str, int] = field(default_factory=dict)
    #: On standard output, by the command before.
    said: str = ""
    _exported: dict[str, str] = field(default_factory=dict)

    def real(self, text: str) -> str:
        for told, here in self.replaced.items():
            text = text.replace(told, here)
        return text

    def ask(self, line: str) -> str:
        """Its answer. It is no command of the page."""
        code, out, err = self._done(line)
        assert code == 0, f"{line}\n{out}{err}"
        return out

    def serve(self, line: str) -> str:
        """What it says first. It goes on until the page ends."""
        said = self.stack.enter_context(self._served(line))
        self._learn_token(said)
        return said

    def run(self, command: Command) -> None:
        """It ends as it should, and says what the page shows: each word of it, whatever the numbers."""
        written = re.sub(r" {2,}# .*$", "", command.text)
        line = self.real(written)
        if line.startswith("pip install "):
            _can_be_installed(line)
            return
        if line.startswith("export "):
            name, _, value = line.removeprefix("export ").partition("=")
            self._exported[name] = value
            return
        if _SERVES.search(line):
            code, out, err = 0, self.serve(line), ""
        else:
            line = line.replace("curl -s ", "curl -sS --fail-with-body ")
            # It would wait for work for ever.
            line = re.sub(r"\binstep worker\b", "instep worker --until-idle", line)
            code, out, err = self._done(line)
        self.said, said = out, out + err
        wanted = next((code for start, code in self.codes.items() if written.startswith(start)), 0)
        assert code == wanted, f"{line}\n{said}"
        assert "Traceback" not in said
        unsaid = set(_WORD.findall(self.real(command.answer))) - set(_WORD.findall(said))
        assert not unsaid, f"{line}\ndoes not say {sorted(unsaid)}:\n{said}"

    def _done(self, line: str) -> tuple[int, str, str]:
        """Its exit code, and what it prints."""
        plain = _PLAIN.match(line)
        if plain and not self._exported:
            return self._called(shlex.split(plain["words"]), plain["read"], plain["write"])
        done = subprocess.run(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def _called(self, words: list[str], read: str | None, write: str | None) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with pytest.MonkeyPatch.context() as patch, chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            for name, value in {**self.variables, "COLUMNS": "200"}.items():
                patch.setenv(name, value)
            given = Path(read).read_text(encoding="utf-8") if read else "y\n"
            patch.setattr(sys, "stdin", _Stdin(given, terminal=read is None))
            code = main(words)
            if write:
                Path(write).write_text(out.getvalue(), encoding="utf-8")
        return code, out.getvalue(), err.getvalue()

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "COLUMNS": "200", **self.variables, **self._exported}

    @contextmanager
    def _served(self, line: str) -> Iterator[str]:
        """What it says first: when it serves."""
        process = subprocess.Popen(
            ["/bin/sh", "-c", line],
            cwd=self.folder,
            env={**self._environment(), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline()
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=60)

    def _learn_token(self, said: str) -> None:
        """Requests of the page show one of its own."""
        if found := re.search(r"#token=(\S+)", said):
            self.replaced["4Zq…"] = self.variables["INSTEP_TOKEN"] = found[1]


def _can_be_installed(line: str) -> None:
    """The package is this one, or one beside it, and has these extras: that they install, `tests/packaging` shows."""
    named = _EXTRAS.match(line)
    assert named, line
    place = {"instep": ROOT}.get(named["package"], ROOT / "integrations" / named["package"].removeprefix("instep-"))
    declared = (place / "pyproject.toml").read_text(encoding="utf-8")
    assert f'name = "{named["package"]}"' in declared, line
    for extra in (named["extras"] or "").split(","):
        assert not extra or re.search(rf"^{extra} = \[", declared, re.MULTILINE), line
