"""The configuration as it is shown: all that holds, and no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.answers.configuration import configuration
from instep.project import load_project

SECRET = "hunter2-correct-horse"

PROJECT = f"""\
name: guides
ledger: postgresql://ann:{SECRET}@db.example/ledger?sslmode=require&sslpassword={SECRET}
spark:
  config:
    spark.hadoop.fs.s3a.secret.key: {SECRET}
    spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net: {SECRET}
    spark.app.name: "${{HOUSE_SECRET}} at home"
    spark.driver.extraJavaOptions: "-Djavax.net.ssl.keyStorePassword={SECRET}"
    spark.driver.memory: 2g
targets:
  index: {{type: postgres, uri: "${{DATABASE}}"}}
  mine: {{type: python, class: "house.targets:Mine", uri: mine, options: {{dsn: {SECRET}, mode: {SECRET}}}}}
  store: {{type: lance, uri: "s3://bucket/index", storage_options: {{region: {SECRET}}}}}
entities:
  Guide:
    source: {{type: files, path: docs}}
    target: index
    embed: {{type: openai, url: "https://ann:{SECRET}@models.example/v1", model: m, dimensions: 8, api_key: {SECRET}}}
api:
  tokens: [{{token: {SECRET}, principals: [alice]}}]
"""


@pytest.fixture
def shown(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "instep.yaml").write_text(PROJECT)
    environment = {"DATABASE": f"postgresql://ann:{SECRET}@db/guides", "HOUSE_SECRET": SECRET}
    project = load_project(tmp_path, environment=environment)
    return {each.path: each.value for each in configuration(project, environment)}


def test_no_secret_is_shown_wherever_it_stands(shown: dict[str, str]) -> None:
    assert [path for path, value in shown.items() if SECRET in value] == []
    assert shown["targets.index.uri"] == "${DATABASE}"
    assert shown["spark.config.spark.app.name"] == "${HOUSE_SECRET} at home"
    assert shown["ledger"] == "postgresql://db.example/ledger"
    assert shown["targets.mine.options.mode"] == shown["entities.Guide.embed.api_key"] == "***"


def test_all_else_is_shown_with_its_defaults(shown: dict[str, str]) -> None:
    assert shown["spark.config.spark.driver.memory"] == "2g"
    assert shown["entities.Guide.source.path"] == "docs"
    assert shown["entities.Guide.priority"] == "40"
    assert "root" not in shown
