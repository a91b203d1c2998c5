"""The declared project as values. They are built from `instep.yaml` or in Python, and never change.

Paths are kept as they were written; `Project.resolved_source`, `Project.resolved_target`, `Project.spark_config`,
`Project.ledger_url` and `Project.state_dir` give them relative to `Project.root`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self
from urllib.parse import unquote, urlsplit

from pydantic import Field, ValidationInfo, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from instep.domain.clock import LONGEST_LEASE, SHORTEST_LEASE, TIMING
from instep.domain.promotion_rules import NEEDED
from instep.domain.refs import PartitionRef, Scope, is_entity_name, own_name
from instep.domain.requests import Group, Kind
from instep.domain.schedules import Schedule
from instep.domain.texts import duration_text
from instep.domain.wants import Retries
from instep.project.addresses import is_relative, is_url, state_url
from instep.project.api import Api
from instep.project.cluster import check_visible_paths, fixed_part, local_places
from instep.project.entities import (
    DeclaredEntity,
    Entity,
    check_changes,
    check_dependencies,
    check_dimensions,
    check_engine,
    check_graph,
    check_names,
    check_processes,
    expanded,
    with_target,
)
from instep.project.fields import (
    Duration,
    Globs,
    Model,
    Namespaces,
    Pause,
    Real,
    Text,
    TextValue,
    Whole,
    no_empty_text,
    problem,
)
from instep.project.lineage import LineageReceiver
from instep.project.queues import Queue, check_queue_names
from instep.project.sources import ClickHouseSource, Source
from instep.project.targets import (
    ClickHouseTarget,
    DeclaredTarget,
    LanceTarget,
    MilvusTarget,
    PythonTarget,
    QdrantTarget,
    Target,
    check_places,
    location_text,
)
from instep.servers.address import SERVER_SCHEMES, nats_address, server_address


class Spark(Model):
    """Settings of Spark: its address, configuration and jars."""

    master: Text = "local[*]"
    """Spark master: `local[*]`, `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`."""
    remote: Text | None = None
    """Spark Connect address (`sc://host:15002`). Replaces `master`."""
    config: dict[str, TextValue] = Field(default={})
    """Configuration of Spark, such as `spark.driver.memory: 1g`."""
    jars: Globs = ()
    """Jars that sources need: paths (relative to the project) or URLs. Not for Spark Connect, whose server loads its
    own."""
    shared: bool = False
    """Whether the paths of sources and targets are on a file system that all hosts of the cluster see. Checked before
    the first job."""

    @field_validator("jars")
    @classmethod
    def _one_jar_each(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for index, each in enumerate(no_empty_text(value)):
            if "," in each:
                raise problem("jar", "must be one jar, without a comma", path=(index,))
        return value

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.remote is not None and "master" in self.model_fields_set:
            raise problem("conflict", "name either `master` or `remote`, not both", path=("remote",))
        if self.jars and self.remote is not None:
            raise problem(
                "conflict", "a Spark Connect server loads its own jars: name them where it starts", path=("jars",)
            )
        if self.jars and "spark.jars" in self.config:
            raise problem("conflict", "name jars either here or in `config`, not in both", path=("jars",))
        return self


_DEFAULT = Retries()


class Handler(Model):
    """Retries and concurrency limit of partitions, for one kind of scope."""

    max_attempts: Whole = Field(default=_DEFAULT.max_attempts, ge=1)
    """Number of attempts at a request of a message or a schedule. After the last one it becomes a dead letter."""
    backoff: tuple[Pause, ...] = Field(
        default=_DEFAULT.backoff, min_length=1, json_schema_extra={"default": [*map(duration_text, _DEFAULT.backoff)]}
    )
    """Pauses between attempts: after the first attempt, the second, and so on. The last pause is repeated."""
    group: str | None = None
    """Name of a concurrency group, whose partitions share `limit`. Needs `limit`."""
    limit: Whole | None = Field(default=None, ge=1)
    """Maximum number of partitions of the group in work at once, on all servers together. Needs `group`."""

    @model_validator(mode="after")
    def _group_and_limit(self) -> Self:
        if self.group is not None and not is_entity_name(self.group):
            message = "the name of a group is letters, digits and underscores, starting with a letter, at most 100"
            raise problem("group", message, path=("group",))
        if (self.group is None) != (self.limit is None):
            missing = "limit" if self.limit is None else "group"
            raise problem("required", "is missing: `group` and `limit` go together", path=(missing,))
        return self


#: How long a month is about: who asks where a row came from does so within weeks.
DAYS_30 = 30 * 24 * 3_600_000
#: The state folder, unless another one is declared.
STATE = ".instep"
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^?]*)(\?.*)?\Z", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


class Project(Model):
    """A project: its entities, sources, targets and queues."""

    name: str
    """Name of the project: letters, digits, dots, dashes and underscores."""
    ledger: str = Field(default="sqlite:///.instep/ledger.db", repr=False)
    """URL of the coordination database: `sqlite:///` and a path (relative to the project folder),
    `postgresql://user:${PASSWORD}@host/database`, or the same with `mariadb://` or `mysql://`."""
    bus: str | None = Field(default=None, repr=False)
    """URL of a NATS server that carries messages of other programs, and status keys:
    `nats://user:${PASSWORD}@host:4222/prefix`, or `tls://`. Without it, status keys are kept in the ledger."""
    state: Text = STATE
    """Folder for caches and locks, relative to the project folder. With a ledger on a server it may be a URL
    (`s3://bucket/prefix`): all servers then share large plans and the records of many documents below it, and keep
    caches and locks in `.instep`."""
    retention: Duration = DAYS_30
    """Time for which records of finished work are kept, such as `30d`: jobs with their slices, instances no longer in
    use, wants and events. Workers delete older records. At least as long as each `deletes.window`."""
    lease: Duration = TIMING.lease
    """Time without a sign of life after which other servers take over the work of a server: from `2m` to `1h`."""
    engine: Literal["auto", "inline", "spark"] = "auto"
    """Engine that runs the waves: `inline` (in this process), `spark`, or `auto` (whichever is quicker)."""
    spark: Spark = Spark()
    """Settings of Spark: its address, configuration and jars."""
    promotion_ratio: Real = Field(default=NEEDED, ge=0, le=1)
    """Minimum share of the documents (or rows) of a new build that must be indexed before it replaces the served one,
    from 0 to 1."""
    namespaces: Namespaces = ()
    """Namespaces to index, as traversal paths (`42/9970`), for entities with a scope. Other namespaces are indexed when
    they are requested. No namespace may be inside another."""
    handlers: dict[Literal["global", "namespace"], Handler] = Field(default={})
    """Retries and concurrency limits, by kind of scope: `global` or `namespace`."""
    queues: dict[str, Queue] = Field(default={})
    """Pending queues, by name. A queue holds the keys that are in one table and in none of the tables that should cover
    them."""
    targets: dict[str, DeclaredTarget] = Field(default={})
    """Stores that hold the indexes, by name. Required if there are entities."""
    entities: dict[str, DeclaredEntity] = Field(default={})
    """Entities to index, by name. May be left out if there are `queues`."""
    api: Api = Api()
    """Settings of the HTTP API."""
    lineage: LineageReceiver | None = None
    """Receiver to which workers send the lineage of their work."""
    root: SkipJsonSchema[Path] = Field(default_factory=Path.cwd)
    """Folder that relative paths are relative to: that of `instep.yaml`."""

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _NAME.match(value):
            raise problem("name", "must be letters, digits, dots, dashes and underscores, at most 100")
        return value

    @field_validator("lease")
    @classmethod
    def _neither_short_nor_long(cls, value: int) -> int:
        if not SHORTEST_LEASE <= value <= LONGEST_LEASE:
            shortest, longest = duration_text(SHORTEST_LEASE), duration_text(LONGEST_LEASE)
            raise problem("lease", f"must be from {shortest} to {longest}")
        return value

    @field_validator("ledger")
    @classmethod
    def _database_url(cls, value: str) -> str:
        scheme, separator, _ = value.partition("://")
        if not separator:
            raise problem("ledger", "must be a database URL such as sqlite:///.instep/ledger.db")
        if scheme in SERVER_SCHEMES:
            try:
                server_address(value)
            except ValueError as error:
                raise problem("ledger", str(error)) from error
        elif scheme not in ("sqlite", "sqlite+pysqlite"):
            raise problem("ledger", "must begin with sqlite:///, postgresql://, mariadb:// or mysql://")
        return value

    @field_validator("state")
    @classmethod
    def _folder_or_shared(cls, value: str, info: ValidationInfo) -> str:
        if not is_url(value):
            return value
        ledger = info.data.get("ledger")
        if ledger is not None and ledger.partition("://")[0] not in SERVER_SCHEMES:
            raise problem(
                "state",
                "must be a folder: a SQLite ledger is on this machine's disk, and has its files beside it; for files "
                "that all servers share, declare a `ledger` on PostgreSQL, MariaDB or MySQL",
            )
        return state_url(value)

    @field_validator("bus")
    @classmethod
    def _nats_url(cls, value: str | None) -> str | None:
        if value is not None:
            try:
                nats_address(value)
            except ValueError as error:
                raise problem("bus", str(error)) from error
        return value

    @field_validator("root")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))  # noqa: PTH100 - resolve() would follow symbolic links

    @field_validator("queues")
    @classmethod
    def _queue_names(cls, value: dict[str, Queue]) -> dict[str, Queue]:
        check_queue_names(value)
        return value

    @field_validator("targets")
    @classmethod
    def _target_names(cls, value: dict[str, Target]) -> dict[str, Target]:
        for name in value:
            if not _NAME.match(name):
                message = "a target's name is letters, digits, dots, dashes and underscores, at most 100"
                raise problem("target_name", message, path=(name,))
        return value

    @field_validator("entities")
    @classmethod
    def _entities_fit(cls, value: dict[str, Entity], info: ValidationInfo) -> dict[str, Entity]:
        """Check what they have to do with each other, and give each its target."""
        check_names(value)
        check_engine(value, info.data.get("engine"))
        check_dependencies(value)
        check_graph(value)
        if (queues := info.data.get("queues")) is not None:
            check_changes(value, queues)
        targets = info.data.get("targets")
        if not targets:
            return value  # They have errors of their own, or are missed below.
        fitted = {name: with_target(name, entity, targets) for name, entity in value.items()}
        check_dimensions(fitted, targets)
        check_processes(fitted, targets, info.data.get("engine"))
        return expanded(fitted)

    @model_validator(mode="after")
    def _losses_are_kept(self) -> Self:
        """Check that jobs are kept for as long as their losses count: these are read from them."""
        for name, entity in self.entities.items():
            if entity.deletes.window > self.retention:
                window = duration_text(entity.deletes.window)
                message = f"must not be less than `deletes.window` of {name}, which is {window}"
                raise problem("retention", message, path=("retention",))
        return self

    @model_validator(mode="after")
    def _something_to_do_in_places_apart(self) -> Self:
        if not self.entities and not self.queues:
            raise problem("required", "is missing: declare what is indexed, or `queues`", path=("entities",))
        if self.entities and not self.targets:
            raise problem("required", "is missing: entities need one", path=("targets",))
        check_places(self.targets, {name: self.resolved_target(name) for name in self.targets})
        return self

    @model_validator(mode="after")
    def _state_in_a_folder(self) -> Self:
        there = next(each for each in (self.state_dir, *self.state_dir.parents) if each.exists())
        if not there.is_dir():
            raise problem("state", "must be a folder, but there is a file at this path or above it", path=("state",))
        return self

    @model_validator(mode="after")
    def _executors_see_all(self) -> Self:
        if self.engine != "inline" and not self.spark.shared:
            check_visible_paths(self.spark.master, self.spark.remote, self.entities, self.targets)
        return self

    @property
    def ledger_url(self) -> str:
        """The ledger's URL, with an absolute path for SQLite. May hold a password: do not show it."""
        match = _SQLITE.match(self.ledger)
        if match is None or match[2] in ("", ":memory:") or match[2].startswith("file:"):
            return self.ledger
        return f"{match[1]}{self._absolute_path(match[2])}{match[3] or ''}"

    @property
    def ledger_label(self) -> str:
        """The ledger's URL without user, password and options: fit to be shown."""
        if self.ledger.partition("://")[0] in SERVER_SCHEMES:
            return server_address(self.ledger).label
        return self.ledger.partition("?")[0]

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The namespaces that are declared."""
        return tuple(map(Scope.parse, self.namespaces))

    @property
    def spark_config(self) -> dict[str, str]:
        """Spark's settings, the jars among them."""
        jars = {"spark.jars": ",".join(map(self.resolve, self.spark.jars))} if self.spark.jars else {}
        return {**self.spark.config, **jars}

    @property
    def state_dir(self) -> Path:
        """Absolute path of the folder for caches and locks; it may not exist yet."""
        return Path(self._absolute_path(STATE if is_url(self.state) else self.state))

    @property
    def state_url(self) -> str | None:
        """The URL below which all servers keep state files, if there is one."""
        return self.state if is_url(self.state) else None

    def named(self, name: str) -> tuple[str, ...]:
        """The entities that a name stands for: several for one with several targets, none for one that is not there."""
        if name in self.entities:
            return (name,)
        return tuple(each for each in self.entities if own_name(each) == name)

    @property
    def own_names(self) -> tuple[str, ...]:
        """The entities as they are declared."""
        return tuple(dict.fromkeys(map(own_name, self.entities)))

    def target_of(self, entity: str) -> str:
        """Name of the target of an entity."""
        name = self.entities[entity].target
        assert name is not None, "filled in by validation"
        return name

    def target_location(self, name: str) -> str:
        """The location of a target as text, without secrets."""
        return location_text(self.resolved_target(name), self.root)

    def resolved_target(self, name: str) -> Target:
        """A target with its paths made absolute."""
        target = self.targets[name]
        if isinstance(target, LanceTarget | QdrantTarget | MilvusTarget | PythonTarget):
            return target.model_copy(update={"uri": self.resolve(target.uri)})
        if isinstance(target, ClickHouseTarget):
            staging = target.staging and self.resolve(target.staging)
            return target.model_copy(update={"uri": self.resolve(target.uri), "staging": staging})
        return target

    def resolved_source(self, entity: str) -> Source:
        """The source of an entity with its paths made absolute."""
        return self.resolved(self.entities[entity].source)

    def resolved(self, source: Source) -> Source:
        """A source with its paths made absolute."""
        if isinstance(source, ClickHouseSource):
            return source.model_copy(update={"uri": self.resolve(source.uri)})
        if source.path is None:
            return source
        return source.model_copy(update={"path": tuple(map(self.resolve, source.path))})

    @property
    def passed_over(self) -> str | None:
        """A warning of entities that have a scope while no namespace is declared; None if there are none."""
        passed = [name for name, each in self.entities.items() if each.namespaced]
        if not passed or self.namespaces:
            return None
        return (
            f"{', '.join(passed)}: not indexed, as no namespace is declared. List them in `namespaces:`, "
            f"or name one, such as {passed[0]}@42/9970"
        )

    def document_paths(self, entity: str) -> tuple[str, ...]:
        """The paths of a documents entity: in `root`, if they are declared so (and begin with a dot), else as `resolve`
        has them.
        """
        declared = getattr(self.entities[entity].source, "path", None) or ()
        return tuple(f"./{each}" if is_relative(each) else self.resolve(each) for each in declared)

    def local_sources(self, entity: str) -> tuple[str, ...]:
        """Absolute paths of the source that are on this machine, whatever may be a pattern left out."""
        declared = getattr(self.entities[entity].source, "path", None) or ()
        return tuple(
            self._absolute_path(each) for each in declared if not is_url(each) and not set(each) & set("*?[]{}")
        )

    @property
    def places_of_tasks(self) -> Mapping[str, bool]:
        """Absolute paths that tasks of Spark need, and whether they write there; patterns are cut off."""
        found: dict[str, bool] = {}
        for each in local_places(self.entities, self.targets):
            path = unquote(urlsplit(each.path).path) if is_url(each.path) else each.path
            path = self._absolute_path(fixed_part(path))
            found[path] = found.get(path, False) or each.written
        return found

    def schedule_of(self, ref: PartitionRef) -> Schedule | None:
        """The times at which workers bring the partition up to date, if its entity declares them."""
        declared = self.entities[ref.entity].schedule
        return None if declared is None else declared.schedule

    def queue_address(self, name: str) -> str:
        """The address of a queue: a URL, which may hold a password, or an absolute path."""
        return self.resolve(self.queues[name].address)

    def resolve(self, location: str) -> str:
        """URLs as they are; paths absolute, `~` expanded, relative ones under `root`."""
        return location if is_url(location) else self._absolute_path(location)

    def _absolute_path(self, path: str) -> str:
        return os.path.normpath(self.root / os.path.expanduser(path))  # noqa: PTH111 - an unknown ~user stays as it is


def retries_of(project: Project, ref: PartitionRef) -> Retries:
    """The attempts of what other programs ask of a partition."""
    declared = project.handlers.get(Kind.of(ref.scope).value)
    return Retries() if declared is None else Retries(declared.max_attempts, declared.backoff)


def group_of(project: Project, ref: PartitionRef) -> Group | None:
    """The concurrency group of a partition; None if it is in none."""
    declared = project.handlers.get(Kind.of(ref.scope).value)
    if declared is None or declared.group is None or declared.limit is None:
        return None
    kinds = frozenset(Kind(kind) for kind, each in project.handlers.items() if each.group == declared.group)
    return Group(declared.group, declared.limit, kinds)
