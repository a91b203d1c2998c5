"""The declared project: `instep.yaml`, or the same models built in Python."""

from instep.project.documents import (
    Chunk,
    DocumentEntity,
    Embed,
    HashingEmbed,
    Limits,
    OpenAIEmbed,
    Promotion,
    PythonEmbed,
    PythonParse,
    RowDocument,
    SentenceTransformersEmbed,
    StaticEmbed,
)
from instep.project.entities import Entity
from instep.project.entity import Deletes
from instep.project.load import FILE_NAME, find_project_file, load_project
from instep.project.models import Handler, Project, Spark
from instep.project.problems import InvalidProject, Problem
from instep.project.queues import Queue, QueueCoverRows, QueueKeys, QueueRows
from instep.project.schema import json_schema
from instep.project.search import HttpRerank, PythonRerank, Searching, Weights
from instep.project.sources import (
    DEFAULT_EXCLUDE,
    DEFAULT_INCLUDE,
    ClickHouseSource,
    FeedSource,
    FilesSource,
    PythonSource,
    Source,
    SparkSource,
    TableSource,
)
from instep.project.tables import Changes, Edge, End, Node, TableEntity
from instep.project.targets import (
    ClickHouseTarget,
    LanceTarget,
    MilvusTarget,
    OpenSearchTarget,
    PostgresTarget,
    PythonTarget,
    QdrantTarget,
    Target,
)

__all__ = [
    "DEFAULT_EXCLUDE",
    "DEFAULT_INCLUDE",
    "FILE_NAME",
    "Changes",
    "Chunk",
    "ClickHouseSource",
    "ClickHouseTarget",
    "Deletes",
    "DocumentEntity",
    "Edge",
    "Embed",
    "End",
    "Entity",
    "FeedSource",
    "FilesSource",
    "Handler",
    "HashingEmbed",
    "HttpRerank",
    "InvalidProject",
    "LanceTarget",
    "Limits",
    "MilvusTarget",
    "Node",
    "OpenAIEmbed",
    "OpenSearchTarget",
    "PostgresTarget",
    "Problem",
    "Project",
    "Promotion",
    "PythonEmbed",
    "PythonParse",
    "PythonRerank",
    "PythonSource",
    "PythonTarget",
    "QdrantTarget",
    "Queue",
    "QueueCoverRows",
    "QueueKeys",
    "QueueRows",
    "RowDocument",
    "Searching",
    "SentenceTransformersEmbed",
    "Source",
    "Spark",
    "SparkSource",
    "StaticEmbed",
    "TableEntity",
    "TableSource",
    "Target",
    "Weights",
    "find_project_file",
    "json_schema",
    "load_project",
]
