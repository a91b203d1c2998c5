"""The server of the API: tokens of those who search, and the principals that they stand for."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import AfterValidator, Field, SecretStr, field_validator

from instep.domain.readers import PrincipalError, checked_principals
from instep.project.fields import Model, problem

_SHORTEST: Final = 16


def token_fault(token: str) -> str | None:
    """The reason why a token could be guessed, or is one that no header holds; None if it is sound."""
    if len(token) >= _SHORTEST and token.isascii() and token.isprintable() and not {" ", ","} & set(token):
        return None
    return f"must have at least {_SHORTEST} characters, and neither spaces nor commas"


def _sound(values: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return checked_principals(values)
    except PrincipalError as error:
        raise problem("principal", str(error)) from None


_Principals: TypeAlias = Annotated[tuple[str, ...], Field(min_length=1), AfterValidator(_sound)]


class Token(Model):
    """A token of the API that only allows searches."""

    token: SecretStr
    """The token; write `${ALICE_TOKEN}`, never the token itself. At least 16 characters, without spaces and commas."""
    principals: _Principals
    """Principals for whom this token searches, such as `alice` and `group:ops`."""

    @field_validator("token")
    @classmethod
    def _no_guess(cls, value: SecretStr) -> SecretStr:
        if fault := token_fault(value.get_secret_value()):
            raise problem("token", fault)
        return value


class Api(Model):
    """Settings of the HTTP API."""

    tokens: tuple[Token, ...] = ()
    """Tokens for searches, each with the principals whose documents it may find."""

    @field_validator("tokens")
    @classmethod
    def _apart(cls, value: tuple[Token, ...]) -> tuple[Token, ...]:
        seen = [each.token.get_secret_value() for each in value]
        for index, each in enumerate(seen):
            if each in seen[:index]:
                raise problem("twice", "is the same as another token", path=(index, "token"))
        return value
