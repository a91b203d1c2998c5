"""An agent's client finds tools and resources over stdio and HTTP, and no more than its principals may know."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import anyio
import httpx
import httpx2
import pytest
from anyio import from_thread, to_thread
from mcp import Client
from mcp.client.stdio import StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, TextResourceContents
from starlette.requests import ClientDisconnect

from instep.app import Instep, load
from instep.mcp.serving import create_mcp_app
from tests.api.conftest import TIMEOUT_SECONDS, TOKEN, bearer, served
from tests.retrievers.notes import SO_OFTEN, during_rebuilds, indexed

READER: Final = "token-of-operations"
PROJECT: Final = f"""\
name: notes
api:
  tokens:
    - {{token: {READER}, principals: ["group:ops"]}}
targets:
  lance: {{type: lance, uri: .instep/lance}}
entities:
  Note:
    source: {{type: files, path: docs}}
    columns: {{acl: "string[]", team: string}}
    readers: acl
"""
DOCUMENTS: Final = {
    "open": "---\nacl: [public]\nteam: herd\n---\n# Open\n\nThe open zebra.\n",
    "closed": "---\nacl: ['group:ops']\nteam: ops\n---\n# Closed\n\nThe closed zebra.\n",
}

Asks = Callable[[Client], Coroutine[Any, Any, None]]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Instep:
    folder = tmp_path_factory.mktemp("notes")
    (folder / "docs").mkdir()
    for name, text in DOCUMENTS.items():
        (folder / "docs" / f"{name}.md").write_text(text)
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 this is none")
    (folder / "instep.yaml").write_text(PROJECT)
    found = load(folder)
    found.run()
    return found


def over_stdio(project: Instep, ask: Asks, *options: str) -> None:
    """Ask the command, as a client starts it."""
    command = ["-m", "instep", "mcp", "--project", str(project.project.root), *options]

    async def main() -> None:
        async with Client(StdioServerParameters(command=sys.executable, args=command)) as client:
            await ask(client)

    anyio.run(main)


def over_http(project: Instep, ask: Asks, token: str = TOKEN, *, changes: bool = False) -> None:
    async def main(address: str) -> None:
        async with (
            httpx2.AsyncClient(headers=bearer(token), timeout=TIMEOUT_SECONDS, verify=False) as http,
            Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
        ):
            await ask(client)

    with served(create_mcp_app(project, token=TOKEN, loopback=True, changes=changes)) as address:
        anyio.run(main, address)


async def answer(client: Client, tool: str, **arguments: object) -> Any:
    """The structured answer of a tool."""
    found = await client.call_tool(tool, arguments)
    assert not found.is_error, found.content
    assert found.structured_content is not None
    return found.structured_content.get("result", found.structured_content)


async def refusal(client: Client, tool: str, **arguments: object) -> str:
    found = await client.call_tool(tool, arguments)
    assert found.is_error, found.structured_content
    [content] = found.content
    assert isinstance(content, TextContent)
    return content.text


async def titles(client: Client, **arguments: object) -> list[str]:
    return sorted(each["title"] for each in await answer(client, "search", query="zebra", mode="text", **arguments))


async def asks_everything(client: Client) -> None:
    assert {each.name for each in (await client.list_tools()).tools} == {
        "search",
        "values",
        "why",
        "status",
        "failures",
    }
    [hit] = await answer(client, "search", query="zebra", mode="text")
    assert (hit["title"], hit["text"]) == ("Open", "# Open\n\nThe open zebra.")
    assert await titles(client, where="team = 'ops'") == []
    assert await answer(client, "values", column="team") == [{"value": "herd", "count": 1}]
    origin = await answer(client, "why", entity="Note", id=hit["chunk_id"])
    assert origin["row"]["source_uri"] == hit["source_uri"]
    [status] = await answer(client, "status")
    assert (status["ref"], status["documents"]) == ("Note@global", 2)
    [failure] = await answer(client, "failures", entities=["Note"])
    assert failure["uri"].endswith("broken.pdf")
    [contents] = (await client.read_resource("instep://project")).contents
    assert isinstance(contents, TextResourceContents)
    assert [each["name"] for each in json.loads(contents.text)["entities"]] == ["Note"]
    [contents] = (await client.read_resource("instep://entities/Note/status")).contents
    assert isinstance(contents, TextResourceContents)
    assert json.loads(contents.text) == [status]


def test_an_agent_that_starts_the_command_has_all_tools_that_read(project: Instep) -> None:
    over_stdio(project, asks_everything)


def test_an_agent_with_the_token_of_the_server_has_all_tools_that_read(project: Instep) -> None:
    over_http(project, asks_everything)


async def asks_for_failures(client: Client) -> None:
    [contents] = (await client.read_resource("instep://entities/Note/failures")).contents
    assert isinstance(contents, TextResourceContents)
    [failure] = json.loads(contents.text)
    assert failure["uri"].endswith("broken.pdf")
    assert failure == (await answer(client, "failures"))[0]


def test_the_failures_of_an_entity_are_a_resource(project: Instep) -> None:
    over_http(project, asks_for_failures)


def test_the_command_serves_http_behind_the_token_of_a_file(project: Instep, tmp_path: Path) -> None:
    file = tmp_path / "token.txt"
    file.write_text(f"{TOKEN}\n")
    options = ["--port", "0", "--token-file", str(file), "--allow-changes", "--json"]
    command = [sys.executable, "-m", "instep", "mcp", "--project", str(project.project.root), *options]

    async def main(address: str) -> None:
        async with (
            httpx2.AsyncClient(headers=bearer(), timeout=TIMEOUT_SECONDS, verify=False) as http,
            Client(streamable_http_client(address, http_client=http)) as client,
        ):
            assert await titles(client) == ["Open"]
            assert (await answer(client, "want", refs=["Note"]))["refs"] == ["Note@global"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            told = json.loads("".join(iter(server.stdout.readline, "}\n")) + "}")
            assert told["token"] is None, "it is known already"
            assert httpx.post(told["address"], headers=bearer("another"), json={}).status_code == 401
            anyio.run(main, told["address"])
        finally:
            server.send_signal(signal.SIGINT)
            _, said = server.communicate(timeout=TIMEOUT_SECONDS)
    assert (server.returncode, TOKEN in said) == (0, False), said


async def asks_as_a_reader(client: Client) -> None:
    assert await titles(client) == ["Closed", "Open"]
    for tool in ("status", "failures"):
        assert "readers" in await refusal(client, tool)
    with pytest.raises(Exception, match="readers"):
        await client.read_resource("instep://entities/Note/failures")


def test_a_reader_finds_what_its_principals_may_read_and_is_told_nothing_else(project: Instep) -> None:
    over_stdio(project, asks_as_a_reader, "--as", "group:ops")
    over_http(project, asks_as_a_reader, READER)


def test_mistakes_are_told_in_a_sentence(project: Instep) -> None:
    async def ask(client: Client) -> None:
        assert "there is no column 'tame'" in await refusal(client, "search", query="zebra", where="tame = 'ops'")
        assert "Nothing" in await refusal(client, "status", entities=["Nothing"])
        said: dict[str, dict[str, object]] = {
            "query must not be empty": {"query": ""},
            "query is missing": {},
            "limit must be at most 100": {"query": "zebra", "limit": 1_000},
            "limit must be a whole number": {"query": "zebra", "limit": "many"},
            "mode is not one of the allowed values; allowed: text, vector, hybrid": {"query": "zebra", "mode": "x"},
            "entities[0] must be text (put it in quotes)": {"query": "zebra", "entities": [1]},
        }
        for sentence, arguments in said.items():
            assert await refusal(client, "search", **arguments) == f"search: {sentence}"
        unknown = await refusal(client, "search", query="zebra", filter="team = 'ops'")
        assert unknown.startswith("search: there is no argument 'filter'; allowed: query, entities, where, ")
        assert all(each.input_schema["additionalProperties"] is False for each in (await client.list_tools()).tools)

    over_http(project, ask)


def test_partitions_are_asked_for_only_where_changes_are_allowed(project: Instep) -> None:
    async def refused(client: Client) -> None:
        assert "want" in await refusal(client, "want", refs=["Note"])

    async def allowed(client: Client) -> None:
        assert (await answer(client, "want", refs=["Note"]))["by"] == "mcp"

    over_http(project, refused)
    over_http(project, allowed, changes=True)
    over_http(project, refused, READER, changes=True)


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
@pytest.mark.parametrize("headers", [{}, bearer("another")], ids=["no token", "another token"])
def test_no_request_is_answered_without_a_token(project: Instep, method: str, headers: dict[str, str]) -> None:
    with served(create_mcp_app(project, token=TOKEN, loopback=True)) as address:
        assert httpx.request(method, f"{address}/mcp", headers=headers).status_code == 401


def test_a_page_of_another_site_is_refused(project: Instep) -> None:
    with served(create_mcp_app(project, token=TOKEN, loopback=True)) as address:
        headers = {**bearer(), "Origin": "https://elsewhere.example"}
        assert httpx.post(f"{address}/mcp", headers=headers, json={}).status_code == 403


@SO_OFTEN
def test_agents_have_no_error_and_no_empty_answer_during_rebuilds(tmp_path: Path, rebuilds: int) -> None:
    """Of what is found, where it comes from, and how far it is."""

    async def questions(client: Client) -> set[int | None]:
        found = await answer(client, "search", query="zebra")
        assert sorted(each["title"] for each in found) == ["Open", "Tame", "Wild"]
        origin = await answer(client, "why", entity="Note", id=found[0]["chunk_id"])
        assert origin["row"]["source_uri"] == found[0]["source_uri"]
        [status] = await answer(client, "status")
        assert (status["ref"], status["documents"]) == ("Note@global", 4)
        return {each["watermark"] for each in found}

    async def ask(client: Client) -> None:
        await to_thread.run_sync(during_rebuilds, tmp_path, lambda: from_thread.run(questions, client), rebuilds)

    over_http(indexed(tmp_path), ask)


def test_a_client_that_goes_away_in_mid_request_leaves_no_traceback() -> None:
    logger = logging.getLogger("mcp.server.streamable_http")
    kept = [
        bool(logger.filter(logger.makeRecord(logger.name, logging.ERROR, "f", 1, "m", (), (type(each), each, None))))
        for each in (ClientDisconnect(), ValueError())
    ]
    assert kept == [False, True]
