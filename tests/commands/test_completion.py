"""What a shell is offered, asked as a shell asks."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.commands.conftest import Connection
from tests.commands.terminal import COMMAND


def completed(line: str, shell: str = "bash", **environment: str) -> list[str]:
    """What `shell` is offered at the end of this line."""
    words = line.split(" ")
    # As the scripts of typer say it: bash with the number of the word, the others with the line.
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TYPER_COMPLETE_ARGS": line}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'oomph'; {COMMAND[-1]}"],
        env={**os.environ, **asked, "_OOMPH_COMPLETE": f"complete_{shell}", **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stderr == ""
    return [line for line in done.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("oomph kin", {"kinds"}),
        ("oomph kinds ", {"list", "pause", "resume"}),
        ("oomph jobs list --st", {"--status"}),
        ("oomph jobs list --status ", {"queued", "running", "succeeded", "dead", "cancelled"}),
        ("oomph jobs list --pool a", {"agent"}),
        ("oomph documents list --status PARS", {"PARSING"}),
        ("oomph enqueue greet --priority in", {"interactive"}),
        ("oomph worker --log-level d", {"debug"}),
    ],
)
def test_commands_options_and_words_of_a_fixed_list_are_offered(line: str, offered: set[str]) -> None:
    assert set(completed(line)) == offered


def test_kinds_come_from_the_database_but_nothing_that_a_shell_would_run(url: str, db: Connection) -> None:
    for kind in ("send-mail", "send-fax", "parse", "send$(touch /tmp/x)", "send'; true", "send two"):
        db.execute("INSERT INTO background_kinds (kind, pool) VALUES (%s, 'system')", [kind])
    for line in ("oomph kinds pause send", "oomph jobs list --kind send", "oomph enqueue send"):
        assert completed(line, DATABASE_URL=url) == ["send-fax", "send-mail"]
    zsh = "\n".join(completed("oomph kinds pause send", "zsh", DATABASE_URL=url))
    assert "send-fax" in zsh
    assert "touch" not in zsh


def test_a_database_that_is_away_or_silent_offers_nothing_and_is_not_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://nobody@127.0.0.1:{silent.getsockname()[1]}/none"
        for given in (url, "postgresql://nobody@127.0.0.1:1/none", "nonsense", ""):
            began = time.monotonic()
            assert completed("oomph kinds pause ", DATABASE_URL=given) == []
            assert time.monotonic() - began < 10


def test_a_real_bash_completes_with_what_it_is_given() -> None:
    script = """
        eval "$(oomph --show-completion)"
        COMP_WORDS=(oomph kin) COMP_CWORD=1
        _oomph_completion oomph
        echo "offered: ${COMPREPLY[*]}"
    """
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout == "offered: kinds\n"
