"""Functions of a project that parse, cut and embed its documents: called by name, wherever a wave runs.

An exception in one is a failure of that document. The tenth of the same kind in a row is the function's fault: then the
job stops, and nothing that it did not write counts as tried.
"""

from __future__ import annotations

import functools
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from instep.domain.fingerprint import digest
from instep.domain.texts import cleaned, without
from instep.errors import InstepError, UserError
from instep.own_faults import is_stop
from instep.pipeline.code_fingerprint import installed_versions, loaded_fingerprint
from instep.pipeline.documents.chunk import Chunk, Chunker
from instep.pipeline.documents.embed.embedder import PROBE, EmbedRejected, as_list, demand_length
from instep.pipeline.documents.parse import (
    FILE_PARSER,
    Parsed,
    ParseFailure,
    Parser,
    check_lines,
    name_of,
    titled,
)
from instep.pipeline.documents.places import starts_of
from instep.pipeline.loading import full_name, load_class, load_function

if TYPE_CHECKING:
    import numpy as np

    from instep.pipeline.documents.embed.embedder import Texts, Vectors

    SomeVectors: TypeAlias = Sequence[Sequence[float]] | np.ndarray[Any, Any]

#: So many failures of one kind in a row stop a job.
IN_A_ROW: Final = 10


class ParsedDocument(NamedTuple):
    """A document's text. `kind` decides how it is cut: Markdown at its headings. Without a title it is called like its
    file. `pages`: where its pages begin, if it has any, in characters of the text.
    """

    text: str
    title: str = ""
    kind: Literal["text", "markdown"] = "text"
    pages: Sequence[int] = ()


class ParseFunction(Protocol):
    """Bytes of a document → its text. None leaves the document to the parser that Instep has."""

    def __call__(self, data: bytes, uri: str, /) -> ParsedDocument | str | None: ...


class ChunkFunction(Protocol):
    """A text → its chunks, in their order. `kind` is `text`, `markdown`, or what the parser says."""

    def __call__(self, text: str, kind: str, /) -> Sequence[str]: ...


class EmbedFunction(Protocol):
    """Texts → a vector for each. The same text always gets the same one."""

    def __call__(self, texts: list[str], /) -> SomeVectors: ...


class FunctionFailed(InstepError):
    """An exception in a function of the project, with the place in its code. `kind` is the same without its message,
    which may quote a document.
    """

    def __init__(self, what: str, kind: str) -> None:
        super().__init__(what)
        self.kind = kind

    def __reduce__(self) -> tuple[type[FunctionFailed], tuple[str, str]]:
        return type(self), (str(self), self.kind)


@dataclass(frozen=True)
class OwnFunction:
    """A function by its name (`package.module:function`), and the fingerprint of its code when the project was opened:
    where a wave runs, its module is imported.
    """

    name: str
    code: str

    @classmethod
    def of(cls, name: str, setting: str) -> OwnFunction:
        """The function, or class, that a setting names. Raises `UserError` if it cannot be imported."""
        name = full_name(name, setting)
        function = (load_class if setting.endswith(".class") else load_function)(name, setting)
        return cls(name, digest([name, loaded_fingerprint(name, function), installed_versions(name.partition(":")[0])]))

    @property
    def function(self) -> Any:
        """The loaded function."""
        return load_function(self.name, "function")

    def call(
        self,
        *given: Any,
        counted: bool = True,
        resets: bool = True,
        wrong: Callable[[Any], str | None] = lambda made: None,
    ) -> Any:
        """Call the function. Raises `FunctionFailed` if it raises anything, or if `wrong` says that what it returned is
        of no use; the tenth time in a row that it is the same, `UserError`; errors of Instep as they are. A call that
        is not `counted` says nothing about documents when it fails, and when it succeeds only if it `resets` the row.
        """
        function = self.function
        try:
            made = function(*given)
            what = wrong(made)  # May run what the function returned: a generator, say.
        except InstepError:
            raise  # An outage, say, that the function knows of.
        except BaseException as error:  # A script's way out, or a panic of a library in Rust, would end the run.
            if is_stop(error):
                raise
            failed = self._failed(error)
            if counted:
                _ROWS.failed(self.name, failed)
            raise failed from error
        if what:
            said = f"{self.name} returned {what}"
            failed = FunctionFailed(said, said)
            if counted:
                _ROWS.failed(self.name, failed)
            raise failed
        if counted or resets:
            _ROWS.succeeded(self.name)
        return made

    def explained(self, error: BaseException) -> str:
        """An exception in it, with its place."""
        return str(self._failed(error))

    def _failed(self, error: BaseException) -> FunctionFailed:
        frames = traceback.extract_tb(error.__traceback__)
        code = getattr(self.function, "__code__", None)
        frame = next((each for each in reversed(frames) if code and each.filename == code.co_filename), frames[-1])
        place = f"({frame.filename}:{frame.lineno} in {frame.name})"
        if code and frame.filename == __file__:  # It was not even called: it takes other arguments, say.
            place = f"({code.co_filename}:{code.co_firstlineno} in {code.co_name})"
        kind = type(error).__name__
        return FunctionFailed(f"{self._said(kind, error)} {place}", f"{kind} {place}")

    def _said(self, kind: str, error: BaseException) -> str:
        return cleaned(f"{kind}: {error}")


@dataclass(frozen=True)
class OwnMethod(OwnFunction):
    """A method of a class by its name (`package.module:Class`), which is called with options once in each process."""

    method: str = ""
    options: tuple[tuple[str, str], ...] = field(default=(), repr=False)

    @property
    def function(self) -> Any:
        """The method of the object. Raises `UserError` if that cannot be made, or has none."""
        try:
            made = _made(load_class(self.name, "class"), self.options)
        except InstepError:
            raise
        except BaseException as error:
            if is_stop(error):
                raise
            raise UserError(f"it cannot be made: {self._said(type(error).__name__, error)}", where=self.name) from None
        if not callable(getattr(made, self.method, None)):
            raise UserError(f"it has no method {self.method!r}", where=self.name)
        return getattr(made, self.method)

    def _said(self, kind: str, error: BaseException) -> str:
        """The error as text, without the values of options, which may be secrets."""
        return cleaned(without(f"{kind}: {error}", *(value for _, value in self.options)))


@functools.cache
def _made(which: type, options: tuple[tuple[str, str], ...]) -> Any:
    return which(**dict(options))


class _Rows:
    """Failures in a row in this process, by function: their kind, and how many."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[str, tuple[str, int]] = {}

    def succeeded(self, name: str) -> None:
        if name in self._found:
            with self._lock:
                self._found.pop(name, None)

    def failed(self, name: str, failed: FunctionFailed) -> None:
        with self._lock:
            before, count = self._found.get(name, (failed.kind, 0))
            count = count + 1 if before == failed.kind else 1
            self._found[name] = failed.kind, count
            if count < IN_A_ROW:
                return
            del self._found[name]
        raise UserError(
            f"it failed for {IN_A_ROW} documents in a row; the last one with {failed.kind}",
            where=name,
            hint="Fix the function and run again: the documents are not counted as failed.",
        )


_ROWS: Final = _Rows()


@dataclass(frozen=True)
class FunctionParser:
    """Parses documents by a `ParseFunction`, and those that it leaves alone by `files`."""

    own: OwnFunction
    files: Parser = FILE_PARSER

    @property
    def fingerprint(self) -> str:
        return digest([self.files.fingerprint, self.own.code])

    def parse(self, data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        """Raises `ParseFailure`."""
        try:
            made = self.own.call(data, uri, wrong=_not_parsed)
        except FunctionFailed as error:
            raise ParseFailure("parse", str(error), quoting=True) from error
        if made is None:
            return self.files.parse(data, uri, max_line_bytes=max_line_bytes, max_bytes=max_bytes)
        found = ParsedDocument(made) if isinstance(made, str) else made
        text = _storable(found.text)
        check_lines(text, max_line_bytes)
        return Parsed(found.kind, titled(found.title) or name_of(uri), text, pages=found.pages)


@dataclass(frozen=True)
class FunctionChunker(Chunker):
    """Cuts texts by a `ChunkFunction`. `size` says only how large chunks are, about."""

    own: OwnFunction | None = None

    @property
    def rules(self) -> str:
        assert self.own is not None, "made with one"
        return digest(["function", self.own.code])

    def cut(self, texts: Sequence[tuple[str, str]]) -> list[list[Chunk] | ParseFailure]:
        return [self._cut(kind, text) for kind, text in texts]

    def _cut(self, kind: str, text: str) -> list[Chunk] | ParseFailure:
        assert self.own is not None, "made with one"
        try:
            made = self.own.call(text, kind, wrong=_not_cut)
        except FunctionFailed as error:
            return ParseFailure("chunk", str(error))
        chunks = [stored for each in made if (stored := _storable(each)).strip()]
        return list(map(Chunk, chunks, starts_of(text, chunks)))


def _not_parsed(made: Any) -> str | None:
    """The reason why the answer of a `ParseFunction` is of no use."""
    if made is None or isinstance(made, str):
        return None
    if not isinstance(made, ParsedDocument) or not isinstance(made.text, str):
        return f"{type(made).__name__}, not text or a ParsedDocument"
    if not all(isinstance(each, str) for each in (made.title, made.kind)):
        return "a `title` or a `kind` that is not text"
    return None if _ascend(made.pages) else "`pages` that are not positions in the text, in ascending order"


def _not_cut(made: Any) -> str | None:
    """The reason why the answer of a `ChunkFunction` is of no use. One that comes bit by bit would be used up here."""
    if isinstance(made, str) or not isinstance(made, Sequence):
        return f"{type(made).__name__}, not a list of texts"
    return None if all(isinstance(each, str) for each in made) else "something other than a list of texts"


def _ascend(places: object) -> bool:
    """Whether these are numbers from 0 on, none less than the one before."""
    if not isinstance(places, list | tuple) or not all(type(each) is int for each in places):
        return False
    return all(before <= at for before, at in pairwise((0, *places)))


def _storable(text: str) -> str:
    """Text of characters that every target holds."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


@dataclass(frozen=True)
class FunctionEmbedder:
    """Embeds texts by an `EmbedFunction`. `cached`: its vectors are kept, by its code and the text."""

    own: OwnFunction
    dimensions: int
    batch: int = 256
    cached: bool = True

    @property
    def fingerprint(self) -> str:
        return digest(["function", self.own.code, self.dimensions])

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        plain = as_list(texts)
        if not plain:
            return np.zeros((0, self.dimensions), np.float32)
        try:
            # To find the text at fault, all are tried in halves: only a text that is alone says something of itself.
            made = self.own.call(list(plain), counted=len(plain) == 1 and plain != [PROBE], resets=plain != [PROBE])
        except FunctionFailed as error:
            raise EmbedRejected(str(error)) from error
        try:
            vectors: Vectors = np.asarray(made, np.float32)
        except Exception as error:  # A tensor that is not detached raises errors of its library.
            raise EmbedRejected(f"{self.own.name} returned something other than vectors: {error}") from None
        demand_length(vectors, len(plain), self.dimensions)
        return vectors
