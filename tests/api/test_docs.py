"""`/docs`: the API to read and to try, of files that this server has."""

from __future__ import annotations

import re
from unittest.mock import patch

import httpx


def test_the_page_of_the_api_asks_this_server_alone(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"].startswith("text/html")
    asked = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert "/docs/swagger-ui-bundle.js" in asked
    for path in asked:
        assert path.startswith("/"), path
        assert client.get(path).status_code == 200, path
    assert "'unsafe" not in page.headers["content-security-policy"]
    assert client.get("/docs/__init__.py").status_code == 404
    assert client.get("/docs/..%2Fmain.py").status_code == 404


def test_without_the_package_it_says_how_to_get_it(client: httpx.Client) -> None:
    with patch("instep.api.docs.find_spec", return_value=None):
        answer = client.get("/docs")
    assert answer.status_code == 404
    assert "pip install" in answer.json()["hint"]


def test_questions_of_searches_have_examples(client: httpx.Client) -> None:
    paths = client.get("/api/openapi.json").json()["paths"]
    for path, names in (("/api/search", {"q", "where", "facet"}), ("/api/values", {"column", "begin"})):
        given = {each["name"]: each for each in paths[path]["get"]["parameters"]}
        assert all(given[name]["examples"] for name in names), path
