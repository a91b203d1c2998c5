"""The declared project: `instep.yaml`, or the same models built in Python."""

from instep.project.load import FILE_NAME, find_project_file, load_project
from instep.project.models import (
    DEFAULT_EXCLUDE,
    DEFAULT_INCLUDE,
    Chunk,
    Deletes,
    Embed,
    Entity,
    FilesSource,
    HashingEmbed,
    LanceTarget,
    Limits,
    OpenAIEmbed,
    Project,
    SentenceTransformersEmbed,
    Source,
    Spark,
    Target,
)
from instep.project.problems import InvalidProject, Problem
from instep.project.schema import json_schema

__all__ = [
    "DEFAULT_EXCLUDE",
    "DEFAULT_INCLUDE",
    "FILE_NAME",
    "Chunk",
    "Deletes",
    "Embed",
    "Entity",
    "FilesSource",
    "HashingEmbed",
    "InvalidProject",
    "LanceTarget",
    "Limits",
    "OpenAIEmbed",
    "Problem",
    "Project",
    "SentenceTransformersEmbed",
    "Source",
    "Spark",
    "Target",
    "find_project_file",
    "json_schema",
    "load_project",
]
