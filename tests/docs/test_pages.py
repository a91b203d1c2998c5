"""Each block of each page is run, in the order of the page, or its source says why it cannot be."""

from __future__ import annotations

import io
import json
import re
import shutil
import socket
import subprocess
import sys
from contextlib import ExitStack, chdir, redirect_stdout
from pathlib import Path
from typing import Any

import anyio
import pytest
import yaml
from mcp import Client
from mcp.client.stdio import StdioServerParameters

from instep.cli import main
from instep.project.load import load_project
from tests.docs.page import ROOT, Block, blocks_of, commands_of, pages
from tests.docs.shell import Shell
from tests.docs.stages import DEAR, STAGES, Stage, use_names


class _Loader(yaml.SafeLoader):
    """`on` is a word, as in a project."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as in its base
        first: [each for each in found if each[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


#: Pages of which these tests run all blocks, each in its own way.
ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/cookbook.md": "test_cookbook.py",
    "docs/functions.md": "test_functions_page.py",
    "docs/python.md": "test_python_pages.py",
    "docs/retrievers.md": "test_python_pages.py",
    "docs/targets.md": "test_targets_page.py",
    "docs/tutorial.md": "test_tutorial.py",
}
#: Each that a page names in `${…}`, whatever the environment of these tests.
VARIABLES = dict.fromkeys(
    (name for page in pages() for name in re.findall(r"\$\{([A-Z_]+)\}", (ROOT / page).read_text(encoding="utf-8"))),
    "a-secret-of-this-test",
)


HERE = sorted({page for page in pages() if blocks_of(page)} - {*ELSEWHERE})


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.proof) if page in DEAR else page for page in HERE]
)
def test_the_blocks_of_a_page_work_as_they_are_written(page: str, tmp_path: Path) -> None:
    Story(page, STAGES.get(page, Stage()), tmp_path).run()


class Story:
    """A page from its first block to its last, in one folder."""

    def __init__(self, page: str, stage: Stage, folder: Path) -> None:
        self._page = page
        self._blocks = [each for each in blocks_of(page) if each.test is None]
        self._stage = stage
        self._folder = folder
        self._base: dict[str, Any] = yaml.load(stage.project, _Loader)
        self._project = self._base
        self._names: dict[str, Any] = {"__name__": "page"}
        ports = {told: str(_free_port()) for told in ("8321", "8322")}
        replaced = {
            "/home/ann/notes": str(folder),
            "instep serve": f"instep serve --port {ports['8321']}",
            **ports,
            **stage.replaced,
        }
        self._shell = Shell(folder, ExitStack(), replaced, {**VARIABLES, **stage.variables}, dict(stage.codes))

    def run(self) -> None:
        self._stage.make(self._folder)
        self._save_blocks()
        self._declare()
        with self._shell.stack as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, value in VARIABLES.items():
                patch.setenv(name, value)
            stack.enter_context(chdir(self._folder))
            self._shell.replaced |= stack.enter_context(self._stage.servers())
            self._index()
            for block in self._blocks:
                self._run_block(block)
            use_names(self._page, self._names)

    def _save_blocks(self) -> None:
        numbers: dict[str, int] = {}
        for block in self._blocks:
            numbers[block.language] = numbers.get(block.language, 0) + 1
            if name := self._stage.saved.get(f"{block.language} {numbers[block.language]}"):
                (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
                (self._folder / name).write_text(block.text, encoding="utf-8")

    def _run_block(self, block: Block) -> None:
        if block.language == "yaml":
            self._declare_block(block)
        elif block.reason is not None:
            return
        elif block.language == "console":
            for command in commands_of(block):
                for start, act in self._stage.before.items():
                    if command.text.startswith(start):
                        act(self._shell)
                self._shell.run(command)
        elif block.language == "python":
            self._execute(block)
        elif block.language == "json":
            self._use_json(block)
        elif block.language == "sql":
            self._stage.query(block.text, self._shell)
        elif block.language == "ini":
            self._verify_unit(block)
        else:
            pytest.fail(f"{block}: nobody runs blocks of this language")

    def _declare_block(self, block: Block) -> None:
        """It is valid, each alternative in it; and what it declares is indexed, if its source does not say why not."""
        before = self._project
        is_another = re.search("^entities:", block.text, re.MULTILINE) and "targets:" not in block.text
        if is_another and block.reason is None:
            # Another source of the same name: as if in a folder of its own.
            shutil.rmtree(self._folder / ".instep", ignore_errors=True)
        for part in _alternatives(self._shell.real(block.text)):
            self._declare(_added(self._project, part, self._base))
        if block.reason is None:
            self._index()
        else:
            self._declare(before)

    def _declare(self, project: dict[str, Any] | None = None) -> None:
        self._project = project or self._project
        (self._folder / "instep.yaml").write_text(yaml.safe_dump(self._project, sort_keys=False), encoding="utf-8")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in VARIABLES.items():
                patch.setenv(name, value)
            load_project(self._folder)

    def _index(self) -> None:
        """Something of each entity is written."""
        if not (self._stage.is_run and self._project.get("entities")):
            return
        out = io.StringIO()
        with redirect_stdout(out):
            code = main(["run", "--json", "--allow-deletes"])
        assert code == 0, out.getvalue()
        found = {each["ref"].partition("@")[0]: each for each in json.loads(out.getvalue())}
        empty = [name for name, each in found.items() if not each["unchanged"] + each["counts"]["written"]]
        assert not empty, out.getvalue()

    def _use_json(self, block: Block) -> None:
        read = _read_json(block.text)
        for server in read[0].get("mcpServers", {}).values():
            anyio.run(_ask_for_tools, server["command"], [self._shell.real(each) for each in server["args"]])

    def _verify_unit(self, block: Block) -> None:
        """A part of a unit of systemd."""
        unit = self._folder / "page.service"
        unit.write_text(block.text.replace("/opt/instep/bin/instep", sys.executable), encoding="utf-8")
        done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done

    def _execute(self, block: Block) -> None:
        with redirect_stdout(io.StringIO()):
            exec(compile(self._shell.real(block.text), str(block), "exec"), self._names)


def test_a_block_that_is_run_elsewhere_names_a_test_that_is_there() -> None:
    named = [each for page in pages() for each in blocks_of(page) if each.test or "tests/" in (each.reason or "")]
    assert named
    for block in named:
        for path in re.findall(r"\w+/[\w/]+(?:\.py)?", block.test or block.reason or ""):
            assert (ROOT / path).exists(), f"{block}: {path}"


def _added(project: dict[str, Any], part: str, base: dict[str, Any]) -> dict[str, Any]:
    """What a block declares, in place of what was declared under the same word. Entities are with those that the page
    begins with alone. A block that is indented says more of the entity that was declared last, or of its embedder.
    """
    declared = yaml.load(part, _Loader)
    indent = len(part) - len(part.lstrip())
    if indent:
        name, entity = list(project["entities"].items())[-1]
        deeper = declared if indent == 4 else {"embed": {**entity["embed"], **declared}}
        return {**project, "entities": {**project["entities"], name: {**entity, **deeper}}}
    if "entities" not in declared:
        return {**project, **declared}
    others = {} if "targets" in declared else base["entities"]
    return {**base, **declared, "entities": {**others, **declared["entities"]}}


def _alternatives(text: str) -> list[str]:
    """A block that has a word twice at its beginning shows one declaration after the other."""
    tops = re.findall(r"^(\w+):", text, re.MULTILINE)
    return [text] if len(tops) == len({*tops}) else text.splitlines(keepends=True)


def _read_json(text: str) -> list[dict[str, Any]]:
    """One value, or one a line."""
    try:
        return [json.loads(text)]
    except ValueError:
        return [json.loads(line) for line in text.splitlines()]


async def _ask_for_tools(command: str, arguments: list[str]) -> None:
    """As an agent's client that is configured so."""
    program = Path(sys.executable).with_name(command)
    async with Client(StdioServerParameters(command=str(program), args=arguments)) as client:
        assert "search" in {each.name for each in (await client.list_tools()).tools}


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
