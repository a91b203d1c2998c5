"""Parse PDFs and office documents in a process apart, which one of them may bring down or keep busy for too long."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import msgspec

from instep.domain.identity import content_hash
from instep.domain.texts import cleaned, duration_text
from instep.errors import Transient, UserError
from instep.pipeline.documents.formats import SUFFIXES, FormatParser
from instep.pipeline.documents.parse import FileParser, Parsed, ParseFailure, is_html, name_of, suffix_of
from instep.pipeline.documents.parse_cache import ParseCache

#: The time limit is of the processor's time: other work on the machine does not count. So many times that may pass.
_PATIENCE: Final = 10
#: HTML of more tags is parsed in the other process: its parser takes hours for hundreds of thousands in each other.
_TAGS: Final = 20_000
#: Bytes before each message that say how long it is.
_LENGTH: Final = 8
_OUT_OF_TIME: Final = (signal.SIGPROF, signal.SIGALRM)


class _Asked(msgspec.Struct, array_like=True):
    data: bytes
    uri: str
    max_line_bytes: int
    max_bytes: int


class _Said(msgspec.Struct, array_like=True):
    """A parsed text, or at which `stage` it failed, and why; `user`: a fault of the installation."""

    kind: str = ""
    title: str = ""
    text: str = ""
    pages: Sequence[int] = ()
    stage: str = ""
    reason: str = ""
    quoting: bool = False
    user: bool = False


@dataclass(frozen=True)
class IsolatedParser:
    """Parses by `parser`: what needs a large library in another process, with limits of `time` (ms) and `memory`. What
    came out of that is kept in `kept`, if there is one.
    """

    parser: FileParser | FormatParser
    time: int
    memory: int
    kept: ParseCache | None = None

    @property
    def fingerprint(self) -> str:
        return self.parser.fingerprint

    def parse(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        """Raises `ParseFailure`."""
        name = name_of(uri)
        if not data or not self._isolates(data, name):
            return self.parser.parse(data, uri, max_line_bytes=max_line_bytes, max_bytes=max_bytes)
        # The title may be the name, and a longer line a failure.
        key = content_hash(f"{content_hash(data)} {max_line_bytes} {max_bytes} {name}".encode("utf-8", "replace"))
        said = self._known(key)
        if said is None:
            said = _process_of(self).ask(_Asked(data, uri, max_line_bytes, max_bytes))
            if said.user:
                raise UserError(said.reason)
            if said.stage:
                raise ParseFailure(said.stage, said.reason, quoting=said.quoting)
            if self.kept is not None:
                self.kept.put(self.fingerprint, key, msgspec.msgpack.encode(said))
        return Parsed(said.kind, said.title, said.text, pages=said.pages)

    def _known(self, key: str) -> _Said | None:
        found = None if self.kept is None else self.kept.get(self.fingerprint, key)
        try:
            return None if found is None else msgspec.msgpack.decode(found, type=_Said)
        except msgspec.MsgspecError:
            return None

    def _isolates(self, data: bytes, name: str) -> bool:
        plain = name.lower().removesuffix(".gz")
        suffix = suffix_of(plain)
        if is_html(suffix):  # What is packed may be anything.
            return plain != name.lower() or data.count(b"<") > _TAGS
        return suffix == ".pdf" or (isinstance(self.parser, FormatParser) and suffix in SUFFIXES)


class _Process:
    """The other process. It ends with this one, and when it is forgotten."""

    def __init__(self, isolated: IsolatedParser) -> None:
        self._isolated = isolated
        self._made_in = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        parser = isolated.parser
        formats, files = (True, parser.files) if isinstance(parser, FormatParser) else (False, parser)
        said = {"formats": formats, "encoding": files.encoding, "time": isolated.time, "memory": isolated.memory}
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very module
                [sys.executable, "-P", "-m", __name__, json.dumps(said)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for this process: it says what is to be done.
            )
        except OSError as error:  # No document is at fault.
            self._errors.close()
            raise Transient(f"the process that parses documents cannot start: {error.strerror}") from None

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def ask(self, asked: _Asked) -> _Said:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            _send(self._process.stdin, msgspec.msgpack.encode(asked))
            answer = _received(self._process.stdout)
        except BrokenPipeError:
            answer = None
        except BaseException:
            self.end()
            raise
        return msgspec.msgpack.decode(answer, type=_Said) if answer is not None else self._died()

    def _died(self) -> _Said:
        code = self._process.wait()
        if code >= 0:
            self._errors.seek(0)
            last = self._errors.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise UserError(
                f"the process that parses documents ended: {cleaned(last) or f'exit code {code}'}",
                hint=f"It is started with {sys.executable}: is Instep installed there with all that it needs?",
            )
        if -code in _OUT_OF_TIME:
            reason = f"takes longer than {duration_text(self._isolated.time)} to parse (parse_time)"
        else:
            reason = f"its parser ended by {signal.Signals(-code).name}: the file is broken, or needs too much memory"
        return _Said(stage="parse", reason=reason)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()
        for each in (self._process.stdin, self._process.stdout, self._errors):
            if each is not None:
                with suppress(BrokenPipeError):  # What it was not sent any more.
                    each.close()

    def __del__(self) -> None:
        if getattr(self, "_process", None) is not None and self._made_in == os.getpid():  # A fork has it, too.
            self.end()


_of_thread = threading.local()


def _process_of(isolated: IsolatedParser) -> _Process:
    """One for each thread, while it is asked for the same."""
    there: Mapping[IsolatedParser, _Process] = getattr(_of_thread, "processes", {})
    found = there.get(isolated)
    if found is None or not found.runs:
        found = _Process(isolated)
        _of_thread.processes = {isolated: found}
    return found


def _send(pipe: IO[bytes], message: bytes) -> None:
    pipe.write(len(message).to_bytes(_LENGTH, "big"))
    pipe.write(message)
    pipe.flush()


def _received(pipe: IO[bytes]) -> bytes | None:
    """None at the end."""
    head = pipe.read(_LENGTH)
    if len(head) < _LENGTH:
        return None
    length = int.from_bytes(head, "big")
    found = pipe.read(length)
    return found if len(found) == length else None


# In the other process.


def _limit_memory(more: int) -> None:
    """Refuse this process more than so many bytes beside those that it has."""
    import resource

    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return  # Only Linux counts what is written to, and so leaves out what is but reserved.
    has = next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmData:"))
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (has + more if most < 0 else min(has + more, most), most))


def _answer(parser: FileParser | FormatParser, asked: _Asked, memory: int) -> _Said:
    try:
        found = parser.parse(asked.data, asked.uri, max_line_bytes=asked.max_line_bytes, max_bytes=asked.max_bytes)
    except ParseFailure as error:
        return _Said(stage=error.stage, reason=error.reason, quoting=error.quoting)
    except UserError as error:
        return _Said(reason=str(error), user=True)
    except MemoryError:
        return _Said(stage="parse", reason=f"needs more than {memory:,} bytes to parse (parse_memory)")
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # A parser can raise anything, a library in Rust a panic: the document's fault.
        return _Said(stage="parse", reason=f"{type(error).__name__}: {error}", quoting=True)
    return _Said(found.kind, found.title, found.text, list(found.pages))


def main(said: str) -> None:
    """Answer what comes in until it ends."""
    told: dict[str, Any] = json.loads(said)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # A library may print.
    files = FileParser(told["encoding"])
    parser = FormatParser.of(told["encoding"]) if told["formats"] else files
    seconds, memory = told["time"] / 1000, told["memory"]
    for each in _OUT_OF_TIME:
        signal.signal(each, signal.SIG_DFL)
    _limit_memory(memory)
    while (message := _received(sys.stdin.buffer)) is not None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE * seconds)
        answer = _answer(parser, msgspec.msgpack.decode(message, type=_Asked), memory)
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _send(answers, msgspec.msgpack.encode(answer))


if __name__ == "__main__":
    main(sys.argv[1])
