"""An embeddings endpoint that bills by tokens, as OpenAI's tokenizer counts them: in the words of three protocols."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from instep.pipeline.documents.embed.http import close_connections

MODEL = "text-embedding-3-small"


@cache
def _encoding() -> Any:
    import llama_index.core
    from tiktoken import Encoding
    from tiktoken.load import load_tiktoken_bpe

    # The vocabulary that comes with LlamaIndex: nothing is downloaded.
    folder = Path(llama_index.core.__file__).parent / "_static" / "tiktoken_cache"
    ranks = load_tiktoken_bpe(str(folder / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"))
    from tiktoken_ext.openai_public import cl100k_base  # type: ignore[import-untyped]  # has no types

    pattern = cl100k_base.__code__.co_consts
    text = next(each for each in pattern if isinstance(each, str) and "\\p{L}" in each)
    return Encoding("cl100k", pat_str=text, mergeable_ranks=ranks, special_tokens={})


def tokens(texts: list[str]) -> int:
    return sum(map(len, _encoding().encode_ordinary_batch(texts, num_threads=1)))


class PaidEndpoint(ThreadingHTTPServer):
    """`billed` are the tokens of all requests, `asked` their texts. `tells`: answers say what they have cost, as
    `speaks`'s do.
    """

    daemon_threads = True

    def __init__(self, handler: type[BaseHTTPRequestHandler] | None = None) -> None:
        super().__init__(("127.0.0.1", 0), handler or PaidHandler)
        self.lock = threading.Lock()
        self.billed = 0
        self.requests = 0
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.away = False
        self.tells = True
        self.speaks = "openai"
        #: Requests after which it hangs until `answers` is set.
        self.hangs_after: int | None = None
        self.hanging = threading.Event()
        self.answers = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"

    def embed(self, texts: list[str], dimensions: int = 3) -> dict[str, Any]:
        """The answer to a request, which is billed."""
        cost = tokens(texts)
        with self.lock:
            self.billed += cost
            self.requests += 1
            self.asked += texts
            hangs = self.hangs_after is not None and self.requests > self.hangs_after
        if hangs:
            self.hanging.set()
            self.answers.wait()
        vectors = [[float(len(text)), *[1.0 + text.count("e")] * (dimensions - 1)] for text in texts]
        if self.speaks == "cohere":
            units = {"billed_units": {"input_tokens": cost}}
            return {"embeddings": {"float": vectors}, "meta": units if self.tells else {}}
        data = [{"object": "embedding", "index": n, "embedding": each} for n, each in enumerate(vectors)]
        if self.speaks == "voyage":
            return {"object": "list", "data": data, **({"usage": {"total_tokens": cost}} if self.tells else {})}
        told = {"usage": {"prompt_tokens": cost, "total_tokens": cost}} if self.tells else {}
        return {"object": "list", "model": MODEL, "data": data, **told}


class PaidHandler(BaseHTTPRequestHandler):
    server: PaidEndpoint
    protocol_version = "HTTP/1.1"
    # Head and body in one packet: two would wait for each other.
    wbufsize = -1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.server.away:
            self.send(503, {"error": {"message": "away"}})
        else:
            self.post(body)

    def post(self, body: bytes) -> None:
        asked = json.loads(body)
        self.send(200, self.server.embed(asked["texts"] if "texts" in asked else asked["input"]))

    def send(self, status: int, value: object) -> None:
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.server.headers.append(dict(self.headers))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@contextmanager
def serving(endpoint: PaidEndpoint) -> Iterator[PaidEndpoint]:
    thread = threading.Thread(target=endpoint.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.answers.set()
        close_connections()
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()
