"""Spark as a project declares it."""

from __future__ import annotations

from typing import Self

from pydantic import Field, field_validator, model_validator

from instep.project.fields import Globs, Model, Text, TextValue, no_empty_text, problem


class Spark(Model):
    """How Spark is reached and set up."""

    master: Text = "local[*]"
    """Spark master: `local[*]`, `local[4]`, `spark://host:7077`, `yarn`, `k8s://…`."""
    remote: Text | None = None
    """Spark Connect address (`sc://host:15002`); replaces `master`."""
    config: dict[str, TextValue] = Field(default={})
    """Spark settings, such as `spark.driver.memory: 1g`."""
    jars: Globs = ()
    """Jars that sources need: paths (relative to the project) or URLs. A Spark Connect server loads its own."""

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
