"""`instep schema`."""

from __future__ import annotations

from instep.cli.options import JsonOption
from instep.cli.output import Output


def schema(as_json: JsonOption = False) -> None:
    """Print the JSON Schema of instep.yaml, for editors (always JSON).

    \b
    Examples:
      instep schema > instep.schema.json
      # then, as the first line of instep.yaml:
      # yaml-language-server: $schema=instep.schema.json
    """
    from instep.project import json_schema

    Output(as_json=True).result(json_schema(), lambda: None)
