"""Tools and resources that an agent has (https://modelcontextprotocol.io): searches, origins, status, failures.

All of them only read, but `want`, which is there if changes are allowed. Who asks as a reader (`instep mcp --as`, or a
reader's token over HTTP) can search, complete filters and ask for origins, as these principals; the rest is for the
one who runs the project, as it is over HTTP.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Final

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import CallToolResult, InputRequiredResult, Tool, ToolAnnotations
from pydantic import Field, ValidationError

from instep import __version__
from instep.answers.answer import Answer, as_json
from instep.answers.search import FacetCount, Hit
from instep.api.project import read_project
from instep.api.search import Mode
from instep.app import Instep
from instep.domain.filter_language import MAX_LENGTH
from instep.domain.texts import cleaned
from instep.errors import InstepError
from instep.project.problems import argument_problem
from instep.targets.facets import MAX_VALUES

#: The name of agents in the ledger.
BY: Final = "mcp"

_INSTRUCTIONS: Final = (
    "An index of the project {name}, kept in step with its sources. Read instep://project for its entities and the "
    "columns that filters may name; `search` finds passages, `why` tells where one comes from, `status` how fresh the "
    "index is."
)
_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_ASKS: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)

#: An answer as `--json` and the HTTP API have it. The SDK makes no schema of objects such as references.
Json = dict[str, Any]

Entities = Annotated[
    list[str] | None, Field(description="Only these entities; by default all.", min_length=1, max_length=1_000)
]
Where = Annotated[
    str | None,
    Field(
        description="Only documents whose columns meet this condition, a small subset of SQL's WHERE, such as "
        "team = 'ops' AND year >= 2024 AND tags CONTAINS 'urgent'.",
        max_length=MAX_LENGTH,
    ),
]


@dataclass(frozen=True, slots=True)
class Caller:
    """The one who asks. A `reader` can only search, as these principals."""

    principals: tuple[str, ...] = ()
    reader: bool = False


#: The caller of a request with these headers; None where the transport has none.
CallerOf = Callable[[Mapping[str, str] | None], Caller]


class _Server(MCPServer[Any]):
    """Says in one sentence which arguments are wrong and what is allowed. Arguments that a tool does not have are
    wrong, too: if they were ignored, a filter with a misspelled name would not filter.
    """

    async def list_tools(self) -> list[Tool]:
        return [
            each.model_copy(update={"input_schema": {**each.input_schema, "additionalProperties": False}})
            for each in await super().list_tools()
        ]

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        allowed = {each.name: each.input_schema["properties"] for each in await self.list_tools()}
        unknown = [each for each in arguments if each not in allowed.get(name, arguments)]
        if unknown:
            raise ToolError(f"{name}: there is no argument {unknown[0]!r}; allowed: {', '.join(allowed[name])}")
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if isinstance(error.__cause__, ValidationError):
                raise ToolError(f"{name}: {argument_problem(error.__cause__)}") from None
            raise


def create_server(instep: Instep, caller_of: CallerOf, *, changes: bool = False) -> MCPServer[Any]:
    """The tools and resources of a project. `changes`: agents may ask for partitions, too."""
    server = _Server(
        instep.project.name,
        version=__version__,
        instructions=_INSTRUCTIONS.format(name=instep.project.name),
        log_level="WARNING",
    )
    _add_searches(server, instep, caller_of)
    _add_state(server, instep, caller_of)
    if changes:
        _add_changes(server, instep, caller_of)
    return server


def _add_searches(server: MCPServer[Any], instep: Instep, caller_of: CallerOf) -> None:
    @server.tool(annotations=_READS)
    def search(
        context: Context[Any, Any],
        *,
        query: Annotated[
            str,
            Field(
                description="The text to search for. Words in double quotes are a phrase.",
                min_length=1,
                max_length=2_000,
            ),
        ],
        entities: Entities = None,
        where: Where = None,
        mode: Annotated[
            Mode | None,
            Field(description="Search by words, by vectors or by both; by default the mode of each entity."),
        ] = None,
        limit: Annotated[int, Field(ge=1, le=100, description="Maximum number of hits.")] = 10,
        offset: Annotated[int, Field(ge=0, le=900, description="Better hits to skip.")] = 0,
        group: Annotated[bool, Field(description="Return only the best passage of each document.")] = False,
    ) -> list[Hit]:
        """Find passages of the indexed documents, best first."""
        with _errors_as(ToolError):
            return instep.search(
                query,
                mode=mode,
                limit=limit,
                where=where,
                offset=offset,
                group=group,
                entities=entities,
                principals=caller_of(context.headers).principals,
            )

    @server.tool(annotations=_READS)
    def values(
        context: Context[Any, Any],
        column: Annotated[str, Field(description="The column.", min_length=1, max_length=200)],
        begin: Annotated[str, Field(description="The beginning of the values.", max_length=200)] = "",
        entities: Entities = None,
        limit: Annotated[int, Field(ge=1, le=MAX_VALUES, description="Maximum number of values.")] = 10,
    ) -> list[FacetCount]:
        """List the most frequent values of a column, to write a filter with."""
        with _errors_as(ToolError):
            principals = caller_of(context.headers).principals
            return instep.values(column, begin=begin, limit=limit, entities=entities, principals=principals)

    @server.tool(annotations=_READS)
    def why(
        context: Context[Any, Any],
        entity: Annotated[str, Field(description="The entity.", min_length=1, max_length=400)],
        id: Annotated[
            str,
            Field(
                description="A chunk_id, document_id or source_uri of a hit; for a table, the key.", max_length=8_000
            ),
        ],
    ) -> Json:
        """Tell where an indexed row comes from: its document, the job that wrote it, and when."""
        with _errors_as(ToolError):
            return _json(instep.why(entity, id, principals=caller_of(context.headers).principals, explain=False))

    @server.resource("instep://project", mime_type="application/json")
    def project() -> str:
        """Entities of the project, and the columns that filters may name."""
        return json.dumps(as_json(read_project(instep)))


def _add_state(server: MCPServer[Any], instep: Instep, caller_of: CallerOf) -> None:
    demand_whole = partial(_demand_whole, caller_of)

    @server.tool(annotations=_READS)
    def status(context: Context[Any, Any], entities: Entities = None) -> list[Json]:
        """Show state, size and freshness of the index of each entity."""
        with _errors_as(ToolError):
            demand_whole(context)
            return list(map(_json, instep.status(entities)))

    @server.tool(annotations=_READS)
    def failures(
        context: Context[Any, Any],
        entities: Entities = None,
        limit: Annotated[int, Field(ge=1, le=1_000, description="Maximum number of failures.")] = 100,
    ) -> list[Json]:
        """List documents and rows that could not be indexed, newest first, with the reasons."""
        with _errors_as(ToolError):
            demand_whole(context)
            return list(map(_json, instep.failures(entities, limit=limit)))

    @server.resource("instep://entities/{entity}/status", mime_type="application/json")
    def status_of(context: Context[Any, Any], entity: str) -> str:
        """State, size and freshness of the index of an entity."""
        with _errors_as(ResourceError):
            demand_whole(context)
            return json.dumps(as_json(instep.status([entity])))

    @server.resource("instep://entities/{entity}/failures", mime_type="application/json")
    def failures_of(context: Context[Any, Any], entity: str) -> str:
        """The newest hundred documents or rows of an entity that could not be indexed."""
        with _errors_as(ResourceError):
            demand_whole(context)
            return json.dumps(as_json(instep.failures([entity])))


def _add_changes(server: MCPServer[Any], instep: Instep, caller_of: CallerOf) -> None:
    @server.tool(annotations=_ASKS)
    def want(
        context: Context[Any, Any],
        refs: Annotated[
            list[str],
            Field(description="Entities, or partitions such as MergeRequest@42/9970.", min_length=1, max_length=1_000),
        ],
    ) -> Json:
        """Ask for partitions to be built or brought up to date. The next run or worker does it."""
        with _errors_as(ToolError):
            _demand_whole(caller_of, context)
            return _json(instep.want(refs, by=BY))


def _json(answer: Answer) -> Json:
    found: Json = as_json(answer)
    return found


class _NotForReadersError(InstepError):
    pass


def _demand_whole(caller_of: CallerOf, context: Context[Any, Any]) -> None:
    if caller_of(context.headers).reader:
        raise _NotForReadersError("readers can search, complete filters and ask why alone")


@contextmanager
def _errors_as(kind: type[ToolError] | type[ResourceError]) -> Iterator[None]:
    """Errors of Instep become answers that the agent reads. Of others the SDK tells no more than that there was one."""
    try:
        yield
    except InstepError as error:
        raise kind(cleaned(str(error))) from None
