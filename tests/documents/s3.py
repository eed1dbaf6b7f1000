"""A server with the interface of S3, as a process of its own on a port of this host."""

import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.testing.waiting import wait_for

BUCKET = "papers"


@contextmanager
def s3_server(log: Path) -> Iterator[dict[str, str]]:
    """The environment by which it is reached; it has one bucket, which is empty."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with (
        log.open("wb") as sink,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink, env=_clean()) as server,
    ):
        try:
            wait_for(lambda: _made_bucket(port, server), "a bucket", 60)
            yield {
                "OBJECT_STORE_URL": f"s3://{BUCKET}/of/oomph",
                "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
                "AWS_ALLOW_HTTP": "true",
                "AWS_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "test",
                "AWS_SECRET_ACCESS_KEY": "test",
            }
        finally:
            server.kill()


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}


def _made_bucket(port: int, server: "subprocess.Popen[bytes]") -> bool:
    assert server.poll() is None, "the server has ended"
    request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False
