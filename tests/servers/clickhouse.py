"""ClickHouse behind HTTP, as far as this project asks: the engine is that of chdb, the protocol is spoken here.

It stands in for a server where none is at hand: the client library, its parameters, formats and errors are the real
ones. `INSTEP_TEST_CLICKHOUSE_URL` names a real one to be tested instead.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from email import message_from_bytes
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

_INSERTED = re.compile(r"(?s)\A(\s*INSERT\s+INTO\s+.*?)\s+FORMAT\s+(\w+)\s*\Z")
#: What the client says about the transport, and not to the engine.
_TRANSPORT = {
    *("database", "query", "session_id", "query_id", "user", "password", "client_protocol_version", "role"),
    *("default_format", "wait_end_of_query", "buffer_size", "enable_http_compression", "compress", "decompress"),
}


@contextlib.contextmanager
def running(folder: Path, *, profile: str = "") -> Iterator[str]:
    """The address of a server of its own process, with its data in `folder`; these settings are its user's."""
    code = "import sys; from tests.servers.clickhouse import serve; serve(*sys.argv[1:])"
    root = Path(__file__).parents[2]
    server = subprocess.Popen(
        [sys.executable, "-c", code, str(folder), profile], stdout=subprocess.PIPE, text=True, cwd=root
    )
    assert server.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def serve(folder: str, profile: str) -> None:
    from chdb.state.sqlitelike import connect

    anchor = connect(folder)

    class Handler(_Handler):
        def engine(self) -> Any:
            connection = connect(folder)
            if profile:
                connection.query(f"SET {profile}")
            return connection

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        print(http.server_port, flush=True)
        http.serve_forever()
    anchor.close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two would wait for each other.
    wbufsize = -1

    def engine(self) -> Any:
        raise NotImplementedError

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: Any) -> None:
        return

    def _answer(self) -> None:
        body = self._body()
        try:
            status, answer = 200, self._run(body)
        except Exception as error:
            status, answer = 500, str(error).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _run(self, body: bytes) -> bytes:
        said = dict(parse_qsl(urlsplit(self.path).query, keep_blank_values=True))
        kind = self.headers.get("Content-Type", "")
        if kind.startswith("multipart/form-data"):
            # What would be too long for an address.
            form = message_from_bytes(f"Content-Type: {kind}\r\n\r\n".encode() + body, policy=HTTP)
            for part in form.iter_parts():
                name = part.get_param("name", header="content-disposition")
                value = part.get_payload(decode=True)
                assert isinstance(value, bytes)
                said[str(name)] = value.decode()
            body = b""
        parameters = {name.removeprefix("param_"): said[name] for name in said if name.startswith("param_")}
        settings = {name: said[name] for name in said if not name.startswith("param_") and name not in _TRANSPORT}
        sql = said.get("query", "")
        with contextlib.closing(self.engine()) as connection, tempfile.NamedTemporaryFile() as file:
            for name, value in settings.items():
                connection.query(f"SET {name} = '{value}'")
            if sql and body:
                file.write(body)
                file.flush()
                sql = _from_file(sql, file.name)
            elif not sql:
                sql = body.decode()
                if found := re.match(r"(?s)\s*INSERT\s.*?FORMAT\s+(Arrow|Native)\s", sql[:1000]):
                    raise ValueError(f"data beside a statement in a body: {found[0]}")
            answer: bytes = connection.query(sql, "TabSeparated", params=parameters).bytes()
            return answer


def _from_file(sql: str, path: str) -> str:
    """The same insert from a file instead of what comes with it."""
    found = _INSERTED.match(sql)
    assert found, sql
    insert, form = found.groups()
    if "input(" in insert:
        return insert.replace("input(", f"file('{path}', '{form}', ", 1)
    return f"{insert} SELECT * FROM file('{path}', '{form}')"
