"""Secrets reach executors inside of what tasks are given, and stand nowhere that Spark or the system shows."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin

import psutil
import pytest

from instep.pipeline.documents.embed.embedder import PROBE
from tests.e2e import corpus
from tests.e2e.cluster.hosts import TIMEOUT_SECONDS, Hosts, command, instep
from tests.servers.postgres import running_postgres
from tests.servers.process import free_port
from tests.servers.s3 import running_s3
from tests.servers.spark_cluster import outside

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.proof]

#: Of the embedder, and of a file system of Spark's own. Ledger and object store have the password of all servers.
_API_KEY = "sk-marker-4711-of-the-embedder"
_HADOOP = "marker-0815-of-hadoop"
_LINK = re.compile(r"""(?:href|src)=["']([^"'#]+)""")
_API = ("api/v1/applications", "json/")
_OF_APPLICATION = ("environment", "allexecutors", "jobs", "stages?details=true", "sql?details=true", "storage/rdd")
_NO_PAGE = re.compile(r"/static/|kill|\.sort=|\.desc=")
#: More pages than there are.
_MOST_PAGES = 300


class Endpoint(ThreadingHTTPServer):
    """Embeds nothing before `go`, but what is only tried; `asked` is set by the first text. `refuses`: with an error
    that repeats the key, as some do.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked, self.go = threading.Event(), threading.Event()
        self.refuses = False


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint
    wbufsize = -1

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        if PROBE not in texts:
            self.server.asked.set()
            self.server.go.wait()
        found = {"data": [{"index": at, "embedding": [1.0, 0.0, 0.0]} for at in range(len(texts))]}
        refused = {"error": {"message": f"Incorrect API key provided: {self.headers['Authorization']}"}}
        body = json.dumps(refused if self.server.refuses else found).encode()
        self.send_response(401 if self.server.refuses else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield server
    server.go.set()
    server.shutdown()
    server.server_close()


def test_secrets_are_shown_nowhere(hosts: Hosts, endpoint: Endpoint) -> None:
    ledger, store = running_postgres(), running_s3()
    secrets = {"ledger and store": ledger.password, "embedder": _API_KEY, "hadoop": _HADOOP}
    assert store.password == ledger.password
    ledger.execute("CREATE DATABASE secrets")
    for number in range(6):
        store.files().pipe(f"{store.bucket}/secrets/docs/{number}.md", corpus.text(number).encode())
    folder, events, page = hosts.laptop / "secrets", hosts.laptop / "events", free_port()
    events.mkdir()
    _declare(hosts, endpoint, folder, events, page)
    env = {"LEDGER_PASSWORD": ledger.password, "S3_SECRET": store.password, "API_KEY": _API_KEY, "HADOOP": _HADOOP}
    log = hosts.laptop / "secrets.log"
    with log.open("wb") as stream:
        run = subprocess.Popen(command(folder, "run"), cwd="/", env=outside(env), stdout=stream, stderr=stream)
    try:
        while not endpoint.asked.wait(0.2):
            assert run.poll() is None, log.read_text()
        seen = dict(_processes(run.pid, hosts))
        seen |= dict(_pages(f"http://127.0.0.1:{page}"))
        seen |= dict(_pages(hosts.cluster.page))
        endpoint.go.set()
        assert run.wait(TIMEOUT_SECONDS) == 0, log.read_text()
    finally:
        endpoint.go.set()
        run.kill()
        run.wait()
    endpoint.refuses = True
    refused = instep(folder, "run", "--full-refresh", env=env)
    assert refused.returncode not in (0, 3), refused.stdout + refused.stderr
    seen |= {"output": log.read_text(), "error": refused.stdout + refused.stderr}
    logs = [each for place in (events, folder, hosts.cluster.folder) for each in place.rglob("*") if each.is_file()]
    seen |= {str(each): each.read_bytes().decode("latin-1") for each in logs if each.suffix not in (".jar", ".zip")}
    everything = html.unescape("\n".join(seen.values()))
    assert "spark.hadoop.fs.s3a.secret.key" in everything, "the pages and the log of events were read"
    assert "SparkListenerEnvironmentUpdate" in everything
    assert "org.apache.spark.executor.CoarseGrainedExecutorBackend" in everything
    for name, text in seen.items():
        shown = html.unescape(text)
        assert not [whose for whose, secret in secrets.items() if secret in shown], name


def _declare(hosts: Hosts, endpoint: Endpoint, folder: Path, events: Path, page: int) -> None:
    store, ledger = running_s3(), running_postgres()
    options = {
        "key": store.user,
        "secret": "${S3_SECRET}",
        "endpoint_url": f"http://127.0.0.1:{store.port}",
    }
    target = {
        "type": "lance",
        "uri": f"s3://{store.bucket}/secrets/index",
        "storage_options": {
            "aws_access_key_id": store.user,
            "aws_secret_access_key": "${S3_SECRET}",
            "aws_endpoint": f"http://127.0.0.1:{store.port}",
            "aws_region": "us-east-1",
            "allow_http": "true",
        },
    }
    config = {
        "spark.ui.enabled": "true",
        "spark.ui.port": str(page),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": events.as_uri(),
        "spark.hadoop.fs.s3a.secret.key": "${HADOOP}",
    }
    hosts.declare("secrets", hosts.shared, config=config)
    project = {
        "name": "secrets",
        "ledger": ledger.url("secrets").replace(ledger.password, "${LEDGER_PASSWORD}"),
        "engine": "spark",
        "targets": {"index": target},
        "entities": {
            "Document": {
                "source": {
                    "type": "files",
                    "path": f"s3://{store.bucket}/secrets/docs",
                    "include": ["**/*.md"],
                    "storage_options": options,
                },
                "embed": {
                    "type": "openai",
                    "url": f"http://127.0.0.1:{endpoint.server_port}",
                    "model": "m",
                    "dimensions": 3,
                    "api_key": "${API_KEY}",
                },
            }
        },
    }
    file = folder / "instep.yaml"
    spark = next(line for line in file.read_text().splitlines() if line.startswith("spark:"))
    file.write_text("\n".join([*(f"{key}: {json.dumps(value)}" for key, value in project.items()), spark]))


def _processes(driver: int, hosts: Hosts) -> Iterator[tuple[str, str]]:
    """The command lines of the driver, the cluster, and all that they have started; the environment of executors."""
    executors = {each.pid for parent in hosts.cluster.executors for each in (parent, *parent.children(recursive=True))}
    assert executors
    for first in (psutil.Process(driver), psutil.Process(hosts.cluster.pid)):
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.Error):
                yield f"command line of {process.pid}", " ".join(process.cmdline())
                if process.pid in executors:
                    yield f"environment of {process.pid}", str(process.environ())


def _pages(start: str) -> Iterator[tuple[str, str]]:
    """All pages that can be reached from this one on the same host, and all that Spark tells by its REST API."""
    host = start.split("//")[1].split(":", maxsplit=1)[0]
    known: set[str] = set()
    waiting = [start, *(f"{start}/{each}" for each in _API)]
    while waiting:
        address = waiting.pop()
        if address in known or not address.startswith(f"http://{host}:") or len(known) > _MOST_PAGES:
            continue
        known.add(address)
        try:
            with urllib.request.urlopen(address, timeout=30) as answer:
                text = answer.read().decode("latin-1")
        except (urllib.error.URLError, OSError):
            continue
        yield address, text
        if address.endswith("/v1/applications") and text.startswith("["):
            waiting += [f"{address}/{each['id']}/{what}" for each in json.loads(text) for what in _OF_APPLICATION]
        links = (urljoin(address, html.unescape(link)) for link in _LINK.findall(text))
        # A page in another order has nothing else.
        waiting += [each.replace(" ", "%20") for each in links if not _NO_PAGE.search(each)]
