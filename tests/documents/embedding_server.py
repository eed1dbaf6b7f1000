"""A server of embeddings as OpenAI has them, in a process of its own, that can be told to misbehave.

    python -m tests.documents.embedding_server      prints its port, serves until it is ended

Its model counts words, each in one of a few dimensions; words of one meaning share theirs.

    POST /v1/embeddings     takes the next step of the script, if there is one, and else answers as it should
    PUT /script             a list of steps: {"status", "headers", "body"}, {"delay"}, {"drop"}, {"cut"}, {"vectors"},
                            {"dimensions"}, {"shuffle"}, {"number"} of every vector,
                            {"trickle"}, seconds between bytes, {"endless"}
    GET /seen               what /v1/embeddings was asked so far: [{"headers", "query", "body", "at"}]
"""

import json
import sys
import time
import zlib
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

DIMENSIONS = 64
MEANINGS = {"automobile": "car", "cars": "car", "physician": "doctor", "feline": "cat"}


def vector(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    counts = [0.0] * dimensions
    for word in text.lower().split():
        counts[zlib.crc32(MEANINGS.get(word, word).encode()) % dimensions] += 1.0
    length = sum(count * count for count in counts) ** 0.5
    return [count / length if length else 0.0 for count in counts]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: list[dict[str, Any]] = []  # noqa: RUF012  # of the one server in this process
    seen: list[dict[str, Any]] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self._answer(200, self.seen)

    def do_PUT(self) -> None:
        self.script[:] = json.loads(self._body())
        self._answer(200, {})

    def do_POST(self) -> None:
        body = json.loads(self._body())
        self.seen.append({"headers": dict(self.headers), "query": self.path, "body": body, "at": time.monotonic()})
        step = self.script.pop(0) if self.script else {}
        time.sleep(step.get("delay", 0))
        if step.get("drop"):
            self.close_connection = True
            return
        if urlsplit(self.path).path != "/v1/embeddings":
            step = {"status": 404}
        if "status" in step:
            self._answer(step["status"], step.get("body", {}), step.get("headers", {}))
            return
        dimensions = step.get("dimensions", body.get("dimensions", DIMENSIONS))
        texts = body["input"] + [""] * step.get("vectors", 0)
        data = [{"object": "embedding", "index": i, "embedding": vector(t, dimensions)} for i, t in enumerate(texts)]
        if step.get("shuffle"):
            data.reverse()
        if "number" in step:
            for each in data:
                each["embedding"] = [step["number"]] * dimensions
        answer = {"object": "list", "model": body["model"], "data": data, "usage": {"total_tokens": 1}}
        if "trickle" in step or "endless" in step:
            self._pour(step.get("trickle", 0))
            return
        self._answer(200, answer, cut=step.get("cut", False))

    def _pour(self, seconds: float) -> None:
        """An answer that never ends."""
        self.close_connection = True
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            while True:
                self.wfile.write(b" " if seconds else b" " * 65_536)
                time.sleep(seconds)

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers["Content-Length"]))

    def _answer(self, status: int, body: object, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if cut else content)
        self.close_connection = cut

    def log_message(self, *_: object) -> None:
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()
