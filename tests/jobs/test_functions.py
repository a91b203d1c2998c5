"""Functions of a project that parse, cut and embed: their results, their failures, and what is built anew of them."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import instep
from instep.domain.jobs import JobState
from instep.errors import InstepError, UserError
from instep.pipeline.documents.embed.embedder import EmbedRejected
from instep.pipeline.documents.functions import FunctionEmbedder, OwnFunction
from instep.project import Project
from tests.jobs.own_code import forget

MODULE = """
from instep import ParsedDocument


def parse(data, uri):
    if uri.endswith(".md"):
        return None
    text = data.decode()
    if "broken" in text:
        raise ValueError("what is broken is not read")
    return ParsedDocument(text.upper(), title="Shouted", kind="text")


def cut(text, kind):
    if "uncut" in text.lower():
        raise RuntimeError("cannot be cut")
    return text.split(". ")


def cut_one_by_one(text, kind):
    yield from cut(text, kind)


def embed(texts):
    if any("poison" in each.lower() for each in texts):
        raise KeyError("poison")
    return [[float(len(each)), 1.0, each.count("E") + 0.5] for each in texts]


def same(texts):
    return [[1.0, 0.0, 0.5] for _ in texts]
"""

EMBED = {"type": "python", "function": "own_functions_of_a_test:embed", "dimensions": 3}
CHUNK = {"type": "python", "function": "own_functions_of_a_test:cut"}
PARSE = {"type": "python", "function": "own_functions_of_a_test:parse"}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "docs").mkdir()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "own_functions_of_a_test.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path / "code")
    yield tmp_path
    forget("own_functions_of_a_test")


def opened(root: Path, **entity: Any) -> instep.Instep:
    whole = {"source": {"type": "files", "path": "docs", "include": ["**"]}, "target": "index", **entity}
    targets = {"index": {"type": "lance", "uri": "index"}}
    declared = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Page": whole}}
    return instep.Instep(Project.model_validate(declared))


def write(root: Path, **texts: str) -> None:
    for name, text in texts.items():
        (root / "docs" / f"{name}.dat").write_text(text)


def test_documents_are_parsed_cut_and_embedded_by_functions(root: Path) -> None:
    write(root, one="First part. Second part")
    (root / "docs" / "plain.md").write_text("# Plain\n\nParsed by Instep. As ever.\n")
    project = opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED)
    (result,) = project.run()
    assert result.counts.rows_written == 4
    found = project.search("part", mode="text", limit=9)
    assert {(each.title, each.text) for each in found} == {("Shouted", "FIRST PART"), ("Shouted", "SECOND PART")}
    assert [each.title for each in project.search("ever", mode="text")] == ["Plain"], "None leaves it to Instep"
    assert project.search("anything", mode="vector")[0].mode == "vector"
    assert project.run()[0].state is None, "nothing to do"


def test_an_exception_is_that_documents_failure_with_its_line(root: Path) -> None:
    write(root, good="All is well", broken="broken", uncut="uncut", poison="poison")
    project = opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED)
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (1, 3)
    failed = {each.uri.rpartition("/")[2]: each for each in project.failures()}
    module = root / "code" / "own_functions_of_a_test.py"
    lines = module.read_text().splitlines()
    for name, stage, said in (
        ("broken.dat", "parse", "ValueError: what is broken is not read"),
        ("uncut.dat", "chunk", "RuntimeError: cannot be cut"),
        ("poison.dat", "embed", "KeyError: 'poison'"),
    ):
        raising = next(n for n, line in enumerate(lines, 1) if "raise" in line and said.partition(":")[0] in line)
        function = {"parse": "parse", "chunk": "cut", "embed": "embed"}[stage]
        assert failed[name].stage == stage
        assert failed[name].reason == f"{said} ({module}:{raising} in {function})"


@pytest.mark.parametrize("setting", ["parse", "chunk", "embed"])
def test_what_is_no_exception_is_a_failure_of_the_document_too(root: Path, setting: str) -> None:
    """Libraries in Rust panic with a class of their own below BaseException; so does a cancelled task of asyncio."""
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(
        MODULE + "\n\nclass Panic(BaseException):\n    pass\n\n\ndef panics(given, *more):\n"
        "    said = given.decode() if isinstance(given, bytes) else str(given)\n"
        "    if 'panic' in said.lower():\n        raise Panic('unwrap of None')\n"
        "    return {'parse': lambda: said, 'chunk': lambda: [said], 'embed': lambda: same(given)}"
        f"[{setting!r}]()\n"
    )
    write(root, good="All is well", bad="panic")
    functions: dict[str, dict[str, Any]] = {"parse": PARSE, "chunk": CHUNK, "embed": EMBED}
    functions[setting] = functions[setting] | {"function": "own_functions_of_a_test:panics"}
    project = opened(root, **functions)
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (1, 1)
    (failure,) = project.failures()
    assert failure.stage == setting
    assert failure.reason.startswith("Panic: unwrap of None (")


@pytest.mark.parametrize("setting", ["parse", "chunk", "embed"])
def test_what_a_signal_handler_raises_in_a_function_ends_the_run_and_is_no_failure(root: Path, setting: str) -> None:
    """Orchestrators end a task by an exception of their own, which is none below Exception."""

    class Ended(BaseException):
        pass

    def end(_number: int, _frame: object) -> None:
        raise Ended

    module = root / "code" / "own_functions_of_a_test.py"
    function = {"parse": "parse", "chunk": "cut", "embed": "embed"}[setting]
    signalled: str = f"\n\nimport signal\nit = {function}\ndef {function}(*given):\n    %s\n    return it(*given)\n"
    write(root, one="All is well")
    functions: dict[str, dict[str, Any]] = {"parse": PARSE, "chunk": CHUNK, "embed": EMBED}
    given = {setting: functions[setting]}
    project = opened(root, **given)
    project.plan()
    module.write_text(MODULE + signalled % "signal.raise_signal(signal.SIGUSR1)")
    forget("own_functions_of_a_test")
    before = signal.signal(signal.SIGUSR1, end)
    try:
        with pytest.raises(Ended):
            opened(root, **given).run()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert project.failures() == []
    module.write_text(MODULE + signalled % "pass")
    forget("own_functions_of_a_test")
    (result,) = opened(root, **given).run()
    assert (result.state, result.counts.written) == (JobState.COMPLETED, 1)


def test_a_function_may_use_up_the_list_that_it_is_given(root: Path) -> None:
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(MODULE + "\n\ndef greedy(texts):\n    made = same(texts)\n    texts.clear()\n    return made\n")
    write(root, one="text")
    project = opened(root, parse=PARSE, embed=EMBED | {"function": "own_functions_of_a_test:greedy"})
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (1, 0)


@pytest.mark.parametrize("what", ["broken", "uncut", "poison"])
def test_the_tenth_of_the_same_kind_in_a_row_stops_the_job(root: Path, what: str) -> None:
    write(root, **{f"n{number}": f"{what} {number}" for number in range(30)})
    project = opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED)
    with pytest.raises(UserError, match="failed for 10 documents in a row") as raised:
        project.run()
    assert raised.value.where == f"own_functions_of_a_test:{ {'broken': 'parse', 'uncut': 'cut'}.get(what, 'embed') }"
    assert "Error (" in raised.value.what
    assert what not in raised.value.what, "a message may quote a document that not everyone may read"
    assert "cannot be cut" not in raised.value.what
    assert project.failures() == []
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(MODULE.replace("raise ", "_ = "))
    forget("own_functions_of_a_test")
    (result,) = opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED).run()
    assert (result.state, result.counts.written) == (JobState.COMPLETED, 30)


@pytest.mark.parametrize("setting", ["parse", "chunk", "embed"])
def test_an_outage_that_a_function_knows_of_is_no_documents_fault(
    root: Path, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setattr("instep.jobs.wave.OUTAGE_SECONDS", 0.1)
    write(root, one="First part. Second part")
    given = {"parse": PARSE, "chunk": CHUNK, "embed": EMBED}[setting]
    opened(root, **{setting: given}).plan()
    away = "import instep\ndef away(*_):\n    raise instep.Transient('the model is away')\n"
    name = {"parse": "parse", "chunk": "cut", "embed": "embed"}[setting]
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(MODULE + away + f"{name} = away\n")
    forget("own_functions_of_a_test")
    project = opened(root, **{setting: given})
    with pytest.raises(InstepError, match="the model is away"):
        project.run()
    assert project.failures() == []
    module.write_text(MODULE)
    forget("own_functions_of_a_test")
    assert opened(root, **{setting: given}).run()[0].counts.written == 1


def test_failures_among_good_ones_stop_nothing(root: Path) -> None:
    write(root, **{f"n{number:02}": "broken" if number % 3 else f"good {number}" for number in range(36)})
    (result,) = opened(root, parse=PARSE).run()
    assert (result.counts.written, result.counts.failed) == (12, 24)


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ("text.upper()", "text.lower()", "parser"),
        ('text.split(". ")', 'text.split(", ")', "chunker"),
        ("each.count", "1 + each.count", "embedder"),
    ],
)
def test_a_changed_function_rebuilds_and_the_plan_says_which(root: Path, before: str, after: str, part: str) -> None:
    write(root, one="First part. Second part, third")
    opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED).run()
    (root / "code" / "own_functions_of_a_test.py").write_text(MODULE.replace(before, after) + "\n# A comment.\n")
    forget("own_functions_of_a_test")
    (plan,) = opened(root, parse=PARSE, chunk=CHUNK, embed=EMBED).plan()
    assert f"{part} changed" in plan.why
    assert [each for each in ("parser", "chunker", "embedder") if f"{each} changed" in plan.why] == [part]


MODEL = """
class Model:
    def __init__(self, tilt):
        self.tilt = tilt

    def encode(self, text):
        return [float(len(text)), self.tilt, 1.0]


MODEL = Model(1.0)


def embed(texts):
    return [MODEL.encode(each) for each in texts]
"""


@pytest.mark.parametrize("full_refresh", [False, True])
def test_another_model_at_the_top_of_a_module_gives_other_vectors(root: Path, full_refresh: bool) -> None:
    def nearest(text: str) -> float:
        return opened(root, embed=EMBED).search(text, mode="vector", limit=1)[0].score

    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(MODEL)
    write(root, one="a text")
    opened(root, embed=EMBED).run()
    same = nearest("a text")
    module.write_text(MODEL.replace("Model(1.0)", "Model(-90.0)"))
    forget("own_functions_of_a_test")
    with pytest.raises(UserError, match="was built with another embedder"):
        nearest("a text")
    opened(root, embed=EMBED).run(full_refresh=full_refresh)
    assert nearest("a text") == pytest.approx(same)


@pytest.mark.parametrize(
    ("entity", "said"),
    [
        ({"embed": {**EMBED, "dimensions": 4}}, "gives vectors of 3 dimensions; the project says 4"),
        ({"embed": {**EMBED, "function": "own_functions_of_a_test:missing"}}, "has no function 'missing'"),
        ({"parse": {**PARSE, "function": "not_there_at_all:parse"}}, "parse.function not_there_at_all:parse cannot be"),
    ],
)
def test_a_function_that_is_no_use_is_one_error_before_anything_is_read(
    root: Path, entity: dict[str, Any], said: str
) -> None:
    write(root, one="text")
    project = opened(root, **entity)
    with pytest.raises(UserError, match=said):
        project.run()
    assert project.failures() == []


@pytest.mark.parametrize(
    ("made", "said"),
    [("None", r"the shape \(\) for 1 text"), ("[1.0, 2.0, 3.0]", r"the shape \(3,\) for 1 text")],
)
def test_a_query_whose_function_gives_no_vector_is_an_error_that_says_so(root: Path, made: str, said: str) -> None:
    with (root / "code" / "own_functions_of_a_test.py").open("a") as module:
        module.write(f"def odd(texts):\n    return {made}\n")
    write(root, one="a text")
    project = opened(root, embed={**EMBED, "query_function": "own_functions_of_a_test:odd"})
    project.run()
    with pytest.raises(UserError, match=said):
        project.search("whatever", mode="vector")


ODD_EMBEDDERS = """
class Attached:
    def __array__(self, *given, **named):
        raise RuntimeError("detach it first")

def embed_{name}(texts):
    made = [[float(len(each)), 1.0, 0.5] for each in texts]
    odd = [at for at, each in enumerate(texts) if "odd" in each]
    return {answer} if odd else made
"""


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("fewer", "[each for at, each in enumerate(made) if at not in odd]"),
        ("short", "[each[:2] if at in odd else each for at, each in enumerate(made)]"),
        ("all_short", "[each[:2] for each in made]"),
        ("none", "[None if at in odd else each for at, each in enumerate(made)]"),
        ("attached", "Attached()"),
    ],
)
def test_a_text_of_which_a_function_makes_no_vector_fails_alone(root: Path, name: str, answer: str) -> None:
    with (root / "code" / "own_functions_of_a_test.py").open("a") as module:
        module.write(ODD_EMBEDDERS.format(name=name, answer=answer))
    write(root, one="a text", two="an odd one", three="the third")
    project = opened(root, embed={**EMBED, "function": f"own_functions_of_a_test:embed_{name}"})
    (result,) = project.run()
    assert (result.counts.written, result.counts.failed) == (2, 1)
    (failure,) = project.failures()
    assert "two" in failure.uri


def test_queries_may_have_a_function_of_their_own(root: Path) -> None:
    write(root, one="a text", two="another one that is longer")
    entity = {"embed": {**EMBED, "query_function": "own_functions_of_a_test:same"}}
    project = opened(root, **entity)
    project.run()
    scores = {round(each.score, 6) for each in project.search("whatever", mode="vector")}
    assert scores == {round(each.score, 6) for each in project.search("poison", mode="vector")}


@pytest.mark.parametrize(
    "entity",
    [
        {"chunk": {"type": "python"}},
        {"chunk": {"function": "a:b"}},
        {"embed": {**EMBED, "function": "no colon"}},
        {"parse": PARSE, "source": {"type": "feed", "path": "rows.jsonl"}},
    ],
)
def test_declarations_that_mean_nothing_are_refused(root: Path, entity: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        opened(root, **entity)


def test_a_generator_of_chunks_is_a_failure_and_no_document_without_text(root: Path) -> None:
    write(root, one="First part. Second part")
    project = opened(root, chunk=CHUNK | {"function": "own_functions_of_a_test:cut_one_by_one"}, embed=EMBED)
    project.run()
    (failure,) = project.failures()
    assert "returned generator, not a list of texts" in failure.reason


@pytest.mark.parametrize(
    ("setting", "made", "said"),
    [
        ("parse", "b'bytes'", "returned bytes, not text or a ParsedDocument"),
        ("parse", "ParsedDocument('text', pages=[2, 1])", "returned `pages` that are not positions"),
        ("parse", "ParsedDocument('text', title=None)", "returned a `title` or a `kind` that is not text"),
        ("parse", "ParsedDocument('text', kind=None)", "returned a `title` or a `kind` that is not text"),
        ("chunk", "None", "returned NoneType, not a list of texts"),
        ("chunk", "{'a set', 'has no order'}", "returned set, not a list of texts"),
        ("chunk", "{'walked': 1}.keys()", "returned dict_keys, not a list of texts"),
        ("chunk", "type('Once', (), {'__iter__': lambda self: iter(())})()", "returned Once, not a list of texts"),
        ("chunk", "[b'bytes']", "returned something other than a list of texts"),
    ],
)
def test_a_function_that_returns_what_is_of_no_use_stops_the_job_as_one_that_raises(
    root: Path, setting: str, made: str, said: str
) -> None:
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text(f"from instep import ParsedDocument\n\n\ndef own(*given):\n    return {made}\n")
    write(root, **{f"n{number}": f"text {number}" for number in range(12)})
    project = opened(root, **{setting: {"type": "python", "function": "own_functions_of_a_test:own"}})
    with pytest.raises(UserError, match=f"failed for 10 documents in a row; .*{said}"):
        project.run()
    assert project.failures() == []


def test_a_number_that_no_vector_holds_is_an_error_of_the_project(root: Path) -> None:
    module = root / "code" / "own_functions_of_a_test.py"
    module.write_text("def embed(texts):\n    return [[10**400, 1, 1] for _ in texts]\n")
    write(root, one="text")
    with pytest.raises(UserError, match="returned something other than vectors"):
        opened(root, embed=EMBED).run()


def test_texts_that_are_embedded_together_end_a_row_of_failures() -> None:
    """A worker goes on for days: ten bad texts among many good ones are no reason to stop."""
    embedder = FunctionEmbedder(OwnFunction(f"{__name__}:of_good_texts", ""), 2)
    for _ in range(20):
        assert embedder.embed(pa.array(["good", "better"])).shape == (2, 2)
        with pytest.raises(EmbedRejected):
            embedder.embed(pa.array(["bad"]))


def of_good_texts(texts: list[str]) -> list[list[float]]:
    if "bad" in texts:
        raise ValueError("it is bad")
    return [[1.0, 0.0] for _ in texts]
