"""The receiver of lineage, as a project declares it."""

from __future__ import annotations

from importlib.util import find_spec
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.errors import UserError
from instep.project.addresses import is_url
from instep.project.fields import Model, Text, problem


class LineageReceiver(Model):
    """A receiver of lineage: a server of OpenLineage, or a file."""

    openlineage: Text = Field(repr=False)
    """URL that takes events of OpenLineage (`http://host:5000/api/v1/lineage`), or a file, relative to the project, to
    which each event is appended as a line of JSON. See [lineage.md](lineage.md#openlineage)."""
    api_key: SecretStr | None = None
    """Key of the server, sent as a bearer token; write `${OPENLINEAGE_API_KEY}`, never the key itself."""

    @field_validator("openlineage")
    @classmethod
    def _http_without_secrets(cls, value: str) -> str:
        if not is_url(value):
            return value
        try:
            address = urlsplit(value)
            sound = address.scheme in ("http", "https") and bool(address.hostname) and (address.port or 1)
        except ValueError:
            sound = False
        if not sound:
            raise problem("openlineage", "must be a file, or a URL such as http://host:5000/api/v1/lineage")
        if address.username or address.password:
            raise problem("openlineage", "must have neither user nor password: use `api_key`")
        return value

    @model_validator(mode="after")
    def _keys_are_for_servers(self) -> LineageReceiver:
        if self.api_key is not None and not is_url(self.openlineage):
            raise problem("conflict", "is for a server, and `openlineage` is a file", path=("api_key",))
        return self

    def check(self) -> str:
        """Raises `UserError` if the package that talks to a server is missing."""
        if is_url(self.openlineage) and find_spec("httpx") is None:
            raise UserError(
                "lineage to a server needs httpx", hint="pip install 'instep[openlineage]', or name a file."
            )
        return "events of OpenLineage are sent by each run"
