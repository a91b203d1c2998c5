"""The declared project as values. They are built from `instep.yaml` or in Python, and never change.

Paths are kept as they were written; `Project.resolved_source`, `Project.resolved_target`,
`Project.ledger_url` and `Project.state_dir` give them relative to `Project.root`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    Secret,
    SecretStr,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from instep.domain.planning import SLICE_ROWS_DEFAULT, SLICE_ROWS_MAX, SLICE_ROWS_MIN
from instep.domain.refs import is_entity_name
from instep.domain.server_address import SERVER_SCHEMES, server_address
from instep.project.dependencies import check_dependencies
from instep.project.fields import (
    Bytes,
    Duration,
    Globs,
    OneOrMore,
    Real,
    SecretText,
    Text,
    TextValue,
    Whole,
    no_empty_text,
    problem,
    typed,
)

MAX_BUCKETS = 1024
MAX_DIMENSIONS = 65_536

#: What a `files` source takes when `include` is left out: text that can be chunked as it is.
DEFAULT_INCLUDE = tuple(
    f"**/*.{ending}"
    for ending in (
        *("md", "markdown", "rst", "txt", "html", "htm", "pdf"),
        *("py", "js", "ts", "java", "scala", "kt", "go", "rs", "rb", "c", "h", "cpp", "hpp", "cs", "sh", "sql"),
    )
)
#: What it leaves out when `exclude` is left out: what tools put beside the work.
DEFAULT_EXCLUDE = tuple(
    f"{folder}/"
    for folder in (
        *(".git", ".hg", ".svn", ".instep", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"),
    )
)

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
_SQLITE = re.compile(r"(sqlite(?:\+\w+)?:///)([^?]*)(\?.*)?\Z", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_TRANSFORM = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*\Z")


class Model(BaseModel):
    """Frozen, and strict about its keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def _type_required(schema: dict[str, Any]) -> None:
    schema["required"] = ["type", *schema.get("required", [])]


class Variant(Model):
    """One of several kinds, told apart by `type`."""

    model_config = ConfigDict(json_schema_extra=_type_required)


class Spark(Model):
    """How Spark is reached and set up."""

    master: Text = "local[*]"
    """Spark master: `local[*]`, `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`."""
    remote: Text | None = None
    """Spark Connect address (`sc://host:15002`); replaces `master`."""
    config: dict[str, TextValue] = {}
    """Spark settings, such as `spark.driver.memory: 1g`."""

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.remote is not None and "master" in self.model_fields_set:
            raise problem("conflict", "name either `master` or `remote`, not both", path=("remote",))
        return self


class LanceTarget(Variant):
    """A Lance dataset: embedded, on a disk or in an object store."""

    type: Literal["lance"] = "lance"
    """`lance`."""
    uri: Text
    """Folder (relative to the project) or URL (`s3://bucket/prefix`) that holds the indexes."""
    storage_options: dict[str, SecretText] = {}
    """Options of the object store, such as `aws_region`; values are treated as secrets."""

    def storage(self) -> dict[str, str]:
        """The storage options in clear text, for the client library only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


Target = Annotated[LanceTarget, typed("lance")]


class FilesSource(Variant):
    """Files in folders: local ones, or any URL that fsspec can list."""

    type: Literal["files"] = "files"
    """`files`."""
    path: OneOrMore
    """Folder or list of folders: relative to the project, absolute, or a URL (`s3://bucket/docs`)."""
    include: Globs = DEFAULT_INCLUDE
    """Globs of files to index, relative to each folder, in `.gitignore` style. Default: common text, HTML, PDF
    and source code."""
    exclude: Globs = DEFAULT_EXCLUDE
    """Globs of files to leave out; they win over `include`. Default: folders of version control,
    virtual environments and caches."""
    storage_options: dict[str, Secret[JsonValue]] = {}
    """Options passed on to fsspec, such as `key` or `endpoint_url`; values are treated as secrets."""

    _texts = field_validator("path", "include", "exclude")(no_empty_text)

    def storage(self) -> dict[str, JsonValue]:
        """The storage options in clear text, for fsspec only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


Source = Annotated[FilesSource, typed("files")]


class HashingEmbed(Variant):
    """Deterministic vectors from hashed words: offline, quick, no model."""

    type: Literal["hashing"] = "hashing"
    """`hashing`."""
    dimensions: Whole = Field(default=384, ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""


class OpenAIEmbed(Variant):
    """An endpoint that speaks OpenAI's embeddings API."""

    type: Literal["openai"] = "openai"
    """`openai`."""
    url: Text = "https://api.openai.com/v1"
    """Base URL; `/embeddings` is added to it."""
    model: Text
    """Name of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""
    api_key: SecretStr | None = None
    """Key sent as a bearer token; write `${OPENAI_API_KEY}`, never the key itself."""
    batch: Whole = Field(default=64, ge=1, le=2048)
    """Texts per request."""
    requests_per_minute: Whole | None = Field(default=None, ge=1)
    """Upper limit on requests of one process (each Spark worker counts by itself); none when left out."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.lower().startswith(("http://", "https://")):
            raise problem("url", "must start with http:// or https://")
        return value.rstrip("/")


class SentenceTransformersEmbed(Variant):
    """A model run in this process by the sentence-transformers library (an extra)."""

    type: Literal["sentence-transformers"] = "sentence-transformers"
    """`sentence-transformers`."""
    model: Text
    """Name or folder of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""


Embed = Annotated[
    HashingEmbed | OpenAIEmbed | SentenceTransformersEmbed,
    Field(discriminator="type"),
    typed("hashing", "openai", "sentence-transformers"),
]


class Chunk(Model):
    """How documents are cut into chunks."""

    size: Whole = Field(default=800, ge=1, le=1_000_000)
    """Most characters in a chunk."""
    overlap: Whole = Field(default=0, ge=0)
    """Characters that a chunk repeats of the one before; less than `size`."""

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Self:
        if self.overlap >= self.size:
            raise problem("overlap", "must be smaller than `size`", path=("overlap",))
        return self


class Limits(Model):
    """What a document may be at most; one that is larger goes to the failure list."""

    max_document_bytes: Bytes = 256_000_000
    """Largest document, such as `256MB`."""
    max_line_bytes: Bytes = 1_000_000
    """Longest line of a text document, such as `1MB`."""


class Deletes(Model):
    """A run that would delete more than this stops and asks for `--allow-deletes`."""

    share: Real = Field(default=0.2, ge=0, le=1)
    """Share of the documents indexed, from 0 to 1."""
    floor: Whole = Field(default=100, ge=0)
    """This many documents may always be deleted."""


class Entity(Model):
    """A kind of thing that is indexed: where it comes from, how it is cut and embedded, where it lands."""

    source: Source
    """Where the documents are."""
    chunk: Chunk = Chunk()
    """How they are cut."""
    embed: Embed = HashingEmbed()
    """How chunks become vectors."""
    target: str | None = None
    """Name of a target; may be left out when the project has one."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of chunk rows to another; needs Spark."""
    buckets: Whole = Field(default=16, ge=1, le=MAX_BUCKETS)
    """Number of routes; each document has exactly one, with one writer."""
    slice_rows: Whole = Field(default=SLICE_ROWS_DEFAULT, ge=SLICE_ROWS_MIN, le=SLICE_ROWS_MAX)
    """Rows (chunks) in a slice, the unit of claimed work."""
    work_factor: Real = Field(default=1.0, gt=0, le=1000, allow_inf_nan=False)
    """How much work one row is; slices of costly entities hold fewer rows."""
    priority: Whole = Field(default=40, ge=0, le=1000)
    """Entities of higher priority go first."""
    depends_on: tuple[str, ...] = ()
    """Entities that this one is made from: it is built when they are there."""
    ttl: Duration | None = None
    """Time to live of what was built, such as `30d`: after that it is built anew; for ever when left out."""
    limits: Limits = Limits()
    """What a document may be at most."""
    deletes: Deletes = Deletes()
    """How much one run may delete unasked."""

    @field_validator("transform")
    @classmethod
    def _names_a_function(cls, value: str | None) -> str | None:
        if value is not None and not _TRANSFORM.match(value):
            raise problem("transform", "must have the form package.module:function")
        return value


class Project(Model):
    """What is indexed, from where, into what."""

    name: str
    """Name of the project: letters, digits, dots, dashes and underscores."""
    ledger: str = Field(default="sqlite:///.instep/ledger.db", repr=False)
    """URL of the coordination database: `sqlite:///` and a path (relative to the project folder),
    `postgresql://user:${PASSWORD}@host/database`, or the same with `mariadb://` or `mysql://`."""
    state: Text = ".instep"
    """Folder for caches and locks, relative to the project folder."""
    engine: Literal["auto", "inline", "spark"] = "auto"
    """Where waves run: in this process (`inline`), on Spark, or whichever is quicker (`auto`)."""
    spark: Spark = Spark()
    """How Spark is reached and set up."""
    targets: dict[str, Target] = Field(min_length=1)
    """Where rows land, by name."""
    entities: dict[str, Entity] = Field(min_length=1)
    """What is indexed, by name."""
    root: SkipJsonSchema[Path] = Field(default_factory=Path.cwd)
    """Folder that relative paths are relative to: that of `instep.yaml`."""

    @field_validator("name")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _NAME.match(value):
            raise problem("name", "must be letters, digits, dots, dashes and underscores, at most 100")
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

    @field_validator("root")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return Path(os.path.abspath(value.expanduser()))  # noqa: PTH100 - resolve() would follow symbolic links

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
        """Check names, and give each entity its target."""
        seen: dict[str, str] = {}
        for name, entity in value.items():
            if not is_entity_name(name):
                message = "an entity's name is letters, digits and underscores, starting with a letter, at most 100"
                raise problem("entity_name", message, path=(name,))
            if name.lower() in seen:
                # They share folders and tables, which may not tell the case apart.
                raise problem("entity_name", f"differs from {seen[name.lower()]} in case only", path=(name,))
            seen[name.lower()] = name
            if entity.transform and info.data.get("engine") == "inline":
                raise problem("conflict", "a transform needs Spark, and `engine` is inline", path=(name, "transform"))
        check_dependencies(value)
        targets = info.data.get("targets")
        if targets is None:
            return value  # They have errors of their own.
        return {name: _with_target(name, entity, list(targets)) for name, entity in value.items()}

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
    def state_dir(self) -> Path:
        """Absolute path of the folder for caches and locks; it may not exist yet."""
        return Path(self._absolute_path(self.state))

    def target_of(self, entity: str) -> str:
        """Name of the target of an entity."""
        name = self.entities[entity].target
        assert name is not None, "filled in by validation"
        return name

    def resolved_target(self, name: str) -> Target:
        """A target with its URI made absolute."""
        target = self.targets[name]
        return target.model_copy(update={"uri": self.resolve(target.uri)})

    def resolved_source(self, entity: str) -> Source:
        """The source of an entity with its paths made absolute."""
        source = self.entities[entity].source
        return source.model_copy(update={"path": tuple(self.resolve(path) for path in source.path)})

    def resolve(self, location: str) -> str:
        """URLs as they are; paths absolute, `~` expanded, relative ones under `root`."""
        return location if _URL.match(location) else self._absolute_path(location)

    def _absolute_path(self, path: str) -> str:
        return os.path.normpath(self.root / os.path.expanduser(path))  # noqa: PTH111 - an unknown ~user stays as it is


def _with_target(name: str, entity: Entity, targets: list[str]) -> Entity:
    if entity.target is None:
        if len(targets) > 1:
            message = "must say which target, as there is more than one"
            raise problem("target", message, path=(name, "target"), allowed=targets)
        return entity.model_copy(update={"target": targets[0]})
    if entity.target not in targets:
        raise problem("target", "no such target", path=(name, "target"), allowed=targets)
    return entity
