"""Secrets of a project in texts for people: starred out by their values, in each form, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from instep.domain import texts
from instep.domain.texts import cleaned

from .conftest import BASE, Load, Reject

ENVIRONMENT = {
    "KEY": "k3y-of-the-house",
    "PASSWORD": "p@ss/w0rd",
    "HOST": "db-7.internal",
    "ACCOUNT": '{"client_email": "a@b.c", "private_key": "-----BEGIN KEY-----\\nMIIEvQ0aQ\\n-----END KEY-----\\n"}',
    "WEAK": "postgres",
}


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "_KNOWN", [])


def source(options: str) -> str:
    return BASE.replace("{type: files, path: docs}", f'{{type: python, class: "mine:Desk", options: {{{options}}}}}')


def spark(config: str) -> str:
    return f"{BASE}spark: {{config: {{{config}}}}}\n"


@pytest.mark.parametrize(
    ("declared", "environment", "said", "shown"),
    [
        (source('header: "Bearer ${KEY}"'), ENVIRONMENT, "no k3y-of-the-house here", "no *** here"),
        (source('authorization_key: "Bearer its-own-key-7"'), {}, "no its-own-key-7 here", "no *** here"),
        (source('account: "${ACCOUNT}"'), ENVIRONMENT, "read MIIEvQ0aQ of a@b.c", "read *** of a@b.c"),
        (
            source('account: "${ACCOUNT}"'),
            ENVIRONMENT,
            r'{"private_key": "-----BEGIN KEY-----\nMIIEvQ0aQ\n-----END KEY-----\n"}',
            '{"private_key": "***"}',
        ),
        (
            source('account: \'{"of": [{"token": "its-own-key-7", "table": "notes-7"}]}\''),
            {},
            "its-own-key-7 finds no notes-7",
            "*** finds no notes-7",
        ),
        (
            f"{BASE}ledger: postgresql://me:p%40ss%2Fw0rd@db-7.internal/work\n",
            {},
            "db-7.internal knows neither p%40ss%2Fw0rd nor p@ss/w0rd of me for work",
            "db-7.internal knows neither *** nor *** of me for work",
        ),
        (
            BASE.replace(
                "{type: lance, uri: .instep/index}", '{type: postgres, uri: "postgresql://me:${KEY}@${HOST}/work"}'
            ),
            ENVIRONMENT,
            "db-7.internal does not know k3y-of-the-house",
            "db-7.internal does not know ***",
        ),
        (
            source('url: "postgresql://me:${KEY}@${HOST}/work"'),
            ENVIRONMENT,
            "db-7.internal does not know k3y-of-the-house",
            "db-7.internal does not know ***",
        ),
        (
            source('url: "jdbc:postgresql://db/work?user=me&password=p%40ss%2Fw0rd"'),
            {},
            "FATAL: p@ss/w0rd is wrong for me at db",
            "FATAL: *** is wrong for me at db",
        ),
        (
            f"{BASE}bus: nats://token-of-nats@bus-7.internal:4222\n",
            {},
            "bus-7.internal refuses token-of-nats",
            "bus-7.internal refuses ***",
        ),
        (
            spark("spark.hadoop.fs.s3a.secret.key: s3-secret-of-us, spark.app.name: our-spark-app"),
            {},
            "our-spark-app got 403 with s3-secret-of-us",
            "our-spark-app got 403 with ***",
        ),
        (
            spark('spark.executorEnv.API_TOKEN: "Bearer ${KEY}", spark.driver.host: "${HOST}"'),
            ENVIRONMENT,
            "db-7.internal got 403 with k3y-of-the-house",
            "db-7.internal got 403 with ***",
        ),
    ],
)
def test_secrets_within_values_are_starred_out_and_what_stands_beside_them_is_not(
    load: Load, declared: str, environment: Mapping[str, str], said: str, shown: str
) -> None:
    assert cleaned(said) == said, "nothing is known yet"
    load(declared, environment)
    assert cleaned(said) == shown


@pytest.mark.parametrize("password", ["postgres", "Postgres", "ADMIN", "test", "x", "12345", "documents"])
def test_a_password_that_is_a_usual_word_spoils_no_message(load: Load, password: str) -> None:
    load(f"{BASE}ledger: postgresql://postgres:{password}@h/postgres\n")
    said = "postgres has no documents in the latest index of x (ADMIN, Postgres, 12345): FATAL for user postgres"
    assert cleaned(said) == said
    # Where it stands as a password, it is none the less.
    assert (
        cleaned(f"password={password} for postgresql://postgres:{password}@h/db")
        == "password=*** for postgresql://h/db"
    )


@pytest.mark.parametrize("password", ["postgres1", "post-gres", "postGres", "correcthorsebattery", "123456"])
def test_a_password_that_is_more_than_a_word_is_starred_out(load: Load, password: str) -> None:
    load(f"{BASE}ledger: postgresql://postgres:{password}@h/postgres\n")
    assert cleaned(f"no {password} for postgres") == "no *** for postgres"


@pytest.mark.parametrize(
    "text",
    [
        BASE.replace("lance, uri: .instep/index", "opensearch, uri: 'http://h:9200', user: u, password: 7654321"),
        spark("spark.hadoop.secret: [7654321]"),
        spark("spark.hadoop.secret: {a: 7654321}"),
    ],
)
def test_a_secret_of_the_wrong_kind_is_not_repeated(reject: Reject, text: str) -> None:
    assert "7654321" not in str(reject(text))
