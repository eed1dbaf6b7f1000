"""`oomph top`, on a real terminal and off one."""

import re
import signal
import subprocess
import termios
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from shutil import which
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from rich.console import Console

from jobs.live import KindNow, Scene, WorkerNow
from jobs.queue_sample import COUNT_LIMIT
from supervisor.commands.keyboard import keys
from supervisor.commands.top_view import Moment, Rates, Screen, count, rates
from supervisor.testing import wait_for
from tests.commands.conftest import Connection, Oomph
from tests.commands.terminal import COLOUR, COMMAND, terminal

NOW = datetime(2030, 1, 1, tzinfo=UTC)
LEAVES_THE_SCREEN = "\x1b[?1049l"


def kind(name: str, **more: int) -> KindNow:
    figures = {"kill_streak": 0, "due": 0, "scheduled": 0, "blocked": 0, "running": 0, "oldest_age": 0.0, **more}
    return KindNow(kind=name, pool="system", paused=False, **figures)  # type: ignore[arg-type]


def worker(host: str, *, alive: bool = True) -> WorkerNow:
    return WorkerNow(uuid4(), host, 7, "1.0", ["system"], NOW - timedelta(hours=1), alive, running=3)


def scene(*kinds: KindNow, inserted: int = 0, workers: list[WorkerNow] | None = None) -> Scene:
    return Scene(kinds, 0, workers or [], inserted)


def drawn(screen: Screen, width: int, height: int) -> list[str]:
    console = Console(width=width, height=height, color_system=None)
    with console.capture() as captured:
        console.print(screen.draw(width, height))
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture
def fleet(db: Connection, insert: Callable[..., int]) -> UUID:
    """Two kinds, of which one waits and one runs, and a worker."""
    worker_id = uuid4()
    for name in ("greet", "wave"):
        db.execute("INSERT INTO background_kinds (kind, pool) VALUES (%s, 'system')", [name])
    db.execute(
        "INSERT INTO background_workers (id, host, pid, version, pools, kinds, lease_until) "
        "VALUES (%s, 'web-1', 4711, '1', '{system}', '{greet,wave}', clock_timestamp() + interval '1 hour')",
        [worker_id],
    )
    for _ in range(3):
        insert(kind="greet")
    insert(kind="wave", status="running", worker_id=worker_id, claim=1, attempt=1, started_at=NOW)
    return worker_id


def test_rates_are_what_came_and_what_is_not_there_any_more() -> None:
    before = Moment(100.0, scene(kind("a", due=10, running=2), inserted=1000))
    after = Moment(110.0, scene(kind("a", due=30, running=2), inserted=1100))
    assert rates([before, after]) == Rates(arriving=10.0, ending=8.0)
    assert rates([before]) == rates([]) == Rates()
    too_many = Moment(110.0, scene(kind("a", due=COUNT_LIMIT), inserted=1100))
    assert rates([before, too_many]) == Rates(arriving=10.0, ending=None)
    reset = Moment(110.0, scene(inserted=0))
    assert rates([before, reset]) == Rates()
    late = Moment(110.0, scene(kind("a", due=50), inserted=1000))  # the server's counter lags behind its rows
    assert rates([before, late]) == Rates(arriving=0.0, ending=0.0)


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120])
@pytest.mark.parametrize("height", [3, 8, 24])
def test_a_screen_is_never_wider_or_higher_than_the_window(width: int, height: int) -> None:
    kinds = [kind(f"a-kind-with-a-rather-long-name-{number}\x1b[2J", due=number) for number in range(50)]
    workers = [worker(f"a-host-with-a-long-name-{number}", alive=number != 1) for number in range(20)]
    moments = [Moment(1.0, scene(*kinds, workers=workers))]
    for trouble in ("", "the database does not answer: " + "x" * 200):
        lines = drawn(Screen("db.example:5432", moments, NOW, trouble), width, height)
        assert max(map(len, lines)) <= width
        assert len(lines) <= height
        assert "\x1b" not in "".join(lines)


def test_kinds_are_sorted_and_scrolled_and_the_name_stays_when_columns_go() -> None:
    moments = [Moment(1.0, scene(kind("b", due=5, running=1), kind("a", due=1, running=9), kind("c")))]
    screen = Screen("place", moments, NOW)

    def names(screen: Screen, width: int = 80) -> list[str]:
        lines = drawn(screen, width, 24)
        start = next(number for number, line in enumerate(lines) if line.startswith("KIND"))
        return [line.split()[0] for line in lines[start + 1 : -1]]

    assert names(screen) == ["b", "a", "c"]
    assert names(replace(screen, order="running")) == ["a", "b", "c"]
    assert names(replace(screen, scroll=2)) == ["c"]
    assert names(screen, width=20) == ["b", "a", "c"]


def test_the_headline_counts_workers_as_one_says_it() -> None:
    def headline(*alive: bool) -> str:
        workers = [worker("a", alive=each) for each in alive]
        return Screen("place", [Moment(1.0, scene(workers=workers))], NOW).headline()

    assert headline(True) == "place: 1 worker, 0 running"
    assert headline(True, False) == "place: 1 worker, 1 lost, 0 running"
    assert headline(True, True) == "place: 2 workers, 0 running"
    assert headline() == "place: 0 workers, 0 running"


def test_pools_with_due_jobs_that_nobody_serves_are_told_below_the_headline(
    oomph: Oomph, db: Connection, fleet: UUID
) -> None:
    def second(*workers: WorkerNow, due: int = 3) -> str:
        moments = [Moment(1.0, scene(kind("a", due=due), workers=list(workers)))]
        return drawn(Screen("place", moments, NOW), 80, 24)[1]

    told = "no live worker serves system (3 due)"
    assert second() == second(worker("a", alive=False)) == told
    assert second(worker("a")) == second(due=0) != told
    assert oomph("top").err == ""
    db.execute("DELETE FROM background_workers")
    assert oomph("top").err.splitlines()[0] == told


def test_a_count_says_where_it_stopped() -> None:
    assert (count(9_999), count(COUNT_LIMIT)) == ("9,999", "10,000+")


def test_off_a_terminal_it_is_one_look_as_a_table(oomph: Oomph, fleet: UUID) -> None:
    lines = oomph("top").out.splitlines()
    assert lines[0].split() == ["POOL", "RUNNING", "DUE", "WORKERS", "SCHEDULED", "BLOCKED"]
    assert lines[1].split() == ["system", "1", "3", "1", "0", "0"]
    assert [line.split()[:3] for line in lines if line.startswith(("greet", "wave"))] == [
        ["greet", "0", "3"],
        ["wave", "1", "0"],
    ]
    assert any(line.startswith("web-1 4711") for line in lines)


def test_as_json_it_is_one_object(oomph: Oomph, fleet: UUID) -> None:
    told = oomph("top", "--json").json
    assert told["pools"] == [
        {"pool": "system", "workers": 1, "running": 1, "due": 3, "scheduled": 0, "blocked": 0},
    ]
    assert {row["kind"]: (row["due"], row["running"]) for row in told["kinds"]} == {"greet": (3, 0), "wave": (0, 1)}
    assert [(each["id"], each["running"]) for each in told["workers"]] == [(str(fleet), 1)]


def test_on_a_terminal_it_lives_until_q(url: str, db: Connection, fleet: UUID, insert: Callable[..., int]) -> None:
    with terminal("top", DATABASE_URL=url, COLUMNS="200", LINES="50") as top:  # as a shell may have left them
        top.wait_frame(r"^greet +0 +3 ")
        insert(kind="greet")
        top.wait_frame(r"^greet +0 +4 ")
        top.resize(44, 12)
        narrow = top.wait_frame(r"^q ends, s sorts .*…$")
        assert max(map(len, narrow)) <= 44
        top.press("s")
        top.wait_frame(r"sorts \(by running\)")
        assert [line.split()[0] for line in top.frame if line.startswith(("greet", "wave"))] == ["wave", "greet"]
        top.press("\x1b[B")
        top.wait_frame(r"^greet")
        assert COLOUR.search(top.raw)
        top.press("q")
        assert top.end() == 0
        assert LEAVES_THE_SCREEN in top.raw
        assert termios.tcgetattr(top.slave) == top.settings


@pytest.mark.parametrize(("how", "status"), [("\x03", 130), (signal.SIGTERM, 143)])
def test_however_it_ends_the_terminal_is_given_back(
    url: str, fleet: UUID, how: str | signal.Signals, status: int
) -> None:
    with terminal("top", DATABASE_URL=url, NO_COLOR="1") as top:
        top.wait_frame("^greet")
        if isinstance(how, str):
            top.press(how)
        else:
            top.process.send_signal(how)
        assert top.end() == status
        assert LEAVES_THE_SCREEN in top.raw
        assert termios.tcgetattr(top.slave) == top.settings
        assert not COLOUR.search(top.raw)
        assert "Traceback" not in top.text


def test_a_database_that_goes_away_is_said_and_watched_again(
    url: str, server: str, db: Connection, fleet: UUID
) -> None:
    name = sql.Identifier(str(conninfo_to_dict(url)["dbname"]))
    with terminal("top", DATABASE_URL=url) as top, psycopg.connect(server, autocommit=True) as admin:
        top.wait_frame("^greet")
        admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS false").format(name))
        try:
            admin.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = %s AND application_name = 'oomph'",
                [conninfo_to_dict(url)["dbname"]],
            )
            top.wait_frame("DATABASE_URL|refuses|not currently accepting")
            assert any(line.startswith("greet") for line in top.frame), "the last look stays"
        finally:
            admin.execute(sql.SQL("ALTER DATABASE {} ALLOW_CONNECTIONS true").format(name))
        wait_for(lambda: top.read(0.1) or not any("accepting" in line for line in top.frame), "the next look")
        top.press("q")
        assert top.end() == 0


def test_without_a_database_there_is_nothing_to_watch() -> None:
    with terminal("top", DATABASE_URL="postgresql://nobody@127.0.0.1:1/none") as top:
        assert top.end() == 1
        assert "cannot reach the database at 127.0.0.1:1" in " ".join(top.text.split())
        assert termios.tcgetattr(top.slave) == top.settings


def test_a_dumb_terminal_gets_one_look(url: str, fleet: UUID) -> None:
    with terminal("top", DATABASE_URL=url, TERM="dumb") as top:
        assert top.end() == 0
        assert "\x1b" not in top.raw
        assert "greet" in top.text


def test_keys_that_come_together_are_told_apart() -> None:
    assert keys(b"\x1b[Bq\x1bOA\x1b[6~s\x1b") == ["down", "q", "up", "page down", "s", "\x1b"]
    assert keys(b"") == ["q"], "the terminal has gone"


def test_in_tmux(url: str, fleet: UUID) -> None:
    if which("tmux") is None:
        pytest.skip("tmux is not installed here")
    name = f"oomph-{uuid4().hex}"

    def tmux(*arguments: str) -> str:
        found = subprocess.run(["tmux", "-f", "/dev/null", "-L", name, *arguments], capture_output=True, text=True)
        return found.stdout

    command = " ".join(f"'{part}'" for part in [*COMMAND, "top"])
    tmux("new-session", "-d", "-x", "90", "-y", "15", "-e", f"DATABASE_URL={url}", f"{command}; sleep 30")
    try:
        wait_for(lambda: "BLOCKED" in tmux("capture-pane", "-p"), "the screen in tmux")
        tmux("resize-window", "-x", "40", "-y", "10")
        narrow = re.compile(r"^KIND +RUNNING +DUE( +OLDEST)?( +STATE)?\ngreet", re.MULTILINE)
        wait_for(lambda: narrow.search(tmux("capture-pane", "-p")), "a screen without room for every column")
        tmux("send-keys", "q")
        wait_for(lambda: "greet" not in tmux("capture-pane", "-p"), "its end")
    finally:
        tmux("kill-server")
