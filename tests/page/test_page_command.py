"""`oomph page` as a process of its own, and what it refuses to start as."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from supervisor.commands.application import cli
from supervisor.page.serving import GRACE_SECONDS, MAX_CONNECTIONS
from supervisor.testing.waiting import wait_for
from tests.page.serving import OWNER_TOKEN, TOKENS, Browser

ROOT = Path(__file__).parents[2]
OOMPH = ("-c", "from supervisor.commands import main; main()")
MARK = "Background jobs: "


@contextmanager
def running(*command: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def refusal(*arguments: str, **environment: str) -> str:
    """Why `oomph page` does not start."""
    given = {"DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing", "OOMPH_PAGE_TOKENS": "", **environment}
    result = CliRunner().invoke(cli, ["page", *arguments], env=given, prog_name="oomph")
    assert result.exit_code == 1, result.output
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", ""])
def test_other_hosts_are_not_let_in_without_tokens(host: str) -> None:
    assert "nothing says who may look and act" in refusal("--host", host)


@pytest.mark.parametrize("path", ["background", "//evil.example", "/a b", "/\u00e9", "/a?b", "/a\n"])
def test_a_path_that_links_would_not_bear_is_refused(path: str) -> None:
    assert "must read like /background" in refusal("--path", path)


def test_tokens_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    assert "cannot be read" in refusal("--token-file", str(tmp_path / "nothing"))
    (tmp_path / "tokens").write_text("owner ada short")
    assert "has 5 characters" in refusal("--token-file", str(tmp_path / "tokens"))
    assert "line 1 of OOMPH_PAGE_TOKENS" in refusal(OOMPH_PAGE_TOKENS="owner ada")


@pytest.mark.parametrize("name", ["two words", "a;b", "\u00e9", "<b>", "a\n", "a" * 41])
def test_a_name_that_a_cookie_would_not_bear_is_refused(name: str) -> None:
    assert "a short name such as production is allowed" in refusal("--name", name)
    assert "a short name such as production is allowed" in refusal(OOMPH_PAGE_NAME=name)


@pytest.mark.parametrize(("arguments", "environment"), [(["--name", "eu-1"], {}), ([], {"OOMPH_PAGE_NAME": "eu-1"})])
def test_it_says_which_installation_it_is(url: str, arguments: list[str], environment: dict[str, str]) -> None:
    with running(*OOMPH, "page", "--port", "0", *arguments, DATABASE_URL=url, **environment) as process:
        shown = httpx.get(address_of(process) + "/kinds").text
    assert "<title>Kinds \u00b7 eu-1 \u00b7 Background jobs</title>" in shown


def test_a_database_that_cannot_be_reached_is_told_at_once() -> None:
    assert "cannot reach the database at 127.0.0.1:1" in refusal()


def test_a_port_that_is_taken_is_told(url: str) -> None:
    with running(*OOMPH, "page", "--port", "0", DATABASE_URL=url) as process:
        port = address_of(process).rpartition(":")[2].strip("/\n")
        assert "cannot be listened on" in refusal("--port", port, DATABASE_URL=url)


def address_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith(MARK), (line, process.stderr and process.poll() is not None and process.stderr.read())
    return line.removeprefix(MARK).strip().rstrip("/")


def test_it_serves_those_with_a_token_and_ends_in_order_while_they_watch(url: str, tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(TOKENS)
    arguments = (*OOMPH, "page", "--port", "0", "--host", "0.0.0.0", "--token-file", str(tokens))
    with running(*arguments, DATABASE_URL=url) as process:
        address = address_of(process).replace("0.0.0.0", "127.0.0.1")
        with Browser(address) as browser:
            assert browser.get("/").status_code == 401
            assert browser.sign_in(OWNER_TOKEN).status_code == 200
            assert "server" not in browser.get("/").headers
            with browser.stream("GET", "/live") as stream:
                lines = stream.iter_lines()
                assert next(lines).startswith("retry:")
                process.send_signal(signal.SIGTERM)
                assert process.wait(timeout=GRACE_SECONDS - 1) == 0
    with pytest.raises(httpx.ConnectError):
        httpx.get(address)


TOLD_TO_STOP_AS_IT_STARTS = """
import os, signal, sys

class Told:
    def write(self, text):
        written = sys.__stdout__.write(text)
        if text.startswith("Background jobs: "):
            os.kill(os.getpid(), signal.{name})
        return written

    def flush(self):
        sys.__stdout__.flush()

sys.stdout = Told()
from supervisor.commands import main
main()
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_it_ends_in_order_where_it_is_told_to_before_it_serves(url: str, name: str) -> None:
    script = TOLD_TO_STOP_AS_IT_STARTS.replace("{name}", name)
    with running("-c", script, "page", "--port", "0", DATABASE_URL=url) as process:
        address_of(process)
        assert process.wait(timeout=20) == 0


def test_an_app_that_holds_the_page_can_be_stopped_while_somebody_watches(url: str) -> None:
    with running("-m", "uvicorn", "tests.page.mounted:app", "--port", "0", DATABASE_URL=url) as process:
        assert process.stderr is not None
        line = wait_for(lambda: next((each for each in process.stderr or [] if "running on" in each), None), "it runs")
        address = line.partition("running on ")[2].split()[0]
        with httpx.stream("GET", f"{address}/background/live", timeout=10) as stream:
            assert stream.status_code == 200
            lines = stream.iter_lines()  # kept, because it closes the stream when it goes
            assert next(lines).startswith("retry:")
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=10)
    assert process.returncode in (0, -signal.SIGTERM)


def test_who_lacks_the_extra_is_told_how_to_get_it() -> None:
    script = (
        "import sys\n"
        "sys.modules['starlette'] = None\n"
        "from supervisor.commands import main\n"
        "main(['page', '--database', 'postgresql://nobody@127.0.0.1:1/nothing'])"
    )
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert result.returncode == 1
    assert "oomph[page]" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_worker_and_the_other_commands_do_not_load_the_page() -> None:
    script = "import sys, supervisor.commands.application; assert 'starlette' not in sys.modules"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)


def test_connections_that_say_nothing_do_not_shut_the_page(url: str) -> None:
    """Neither before their first request, nor after it, nor in the middle of one."""
    with running(*OOMPH, "page", "--port", "0", DATABASE_URL=url) as process, ExitStack() as silent:
        port = int(address_of(process).rpartition(":")[2])
        for number in range(MAX_CONNECTIONS + 20):
            held = silent.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            if number % 3 == 1:
                held.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
            elif number % 3 == 2:
                held.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\nGET ")
        with Browser(f"http://127.0.0.1:{port}") as browser:
            assert browser.get("/jobs").status_code == 200
