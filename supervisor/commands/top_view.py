"""What `oomph top` shows: pure functions from one look, and those before it, to tables that fit a screen."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeVar

from jobs.live import KindNow, Scene, WorkerNow
from jobs.queue_sample import COUNT_LIMIT
from supervisor.commands.output import GAP, Column, first_line, printable, shown, span

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

R = TypeVar("R")

RATE_SECONDS = 10.0  # a rate is of so long: PostgreSQL's own counter comes in steps of a second
NARROWEST_NAME = 12
LEAST_KINDS = 3  # lines, however many workers there are


@dataclass(frozen=True, slots=True)
class PoolNow:
    pool: str
    workers: int
    running: int
    due: int
    scheduled: int
    blocked: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Jobs a second over the last seconds; None where that is not known, as on the first look."""

    arriving: float | None = None
    ending: float | None = None


@dataclass(frozen=True, slots=True)
class Moment:
    """One look, and when it was made by a monotonic clock."""

    at: float
    scene: Scene


ORDERS: dict[str, Callable[[KindNow], tuple[object, ...]]] = {
    "waiting": lambda kind: (-kind.waiting, -kind.running, kind.kind),
    "running": lambda kind: (-kind.running, -kind.waiting, kind.kind),
    "oldest": lambda kind: (-kind.oldest_age, kind.kind),
    "kills": lambda kind: (-kind.kill_streak, -kind.paused, kind.kind),
    "name": lambda kind: (kind.kind,),
}


def rates(moments: Sequence[Moment]) -> Rates:
    """What came and what ended between the first and the last of these looks."""
    if len(moments) < 2:
        return Rates()
    first, last = moments[0], moments[-1]
    seconds = last.at - first.at
    arrived = last.scene.inserted - first.scene.inserted
    if seconds <= 0 or arrived < 0:  # somebody reset the server's statistics
        return Rates()
    before, after = first.scene.open, last.scene.open
    ended = None if before is None or after is None else max(0, arrived - (after - before))
    return Rates(arrived / seconds, None if ended is None else ended / seconds)


def pools(scene: Scene) -> list[PoolNow]:
    """The pools that anybody serves or that have jobs, by name."""
    alive = [each for each in scene.workers if each.alive]
    names = {kind.pool for kind in scene.kinds if kind.pool} | {pool for worker in alive for pool in worker.pools}
    found = []
    for name in sorted(names):
        ours = [kind for kind in scene.kinds if kind.pool == name]
        found.append(
            PoolNow(
                name,
                sum(name in worker.pools for worker in alive),
                sum(kind.running for kind in ours),
                sum(kind.due for kind in ours),
                sum(kind.scheduled for kind in ours),
                sum(kind.blocked for kind in ours),
            )
        )
    return found


def unserved(scene: Scene) -> str:
    """Which pools with due jobs no live worker serves, in words; empty without one."""
    told = [f"{pool.pool} ({count(pool.due)} due)" for pool in pools(scene) if pool.due and not pool.workers]
    return f"no live worker serves {', '.join(told)}" if told else ""


def count(number: int) -> str:
    """A count that stops at a limit, as it stands in a table."""
    return f"{number:,}+" if number >= COUNT_LIMIT else f"{number:,}"


# The first column is cut where there is no room; of the others the last ones go first.
POOL_COLUMNS: list[Column[PoolNow]] = [
    Column("POOL", lambda row: row.pool, flexible=True),
    Column("RUNNING", lambda row: count(row.running), right=True),
    Column("DUE", lambda row: count(row.due), right=True),
    Column("WORKERS", lambda row: row.workers, right=True, style=lambda row: "" if row.workers else "red"),
    Column("SCHEDULED", lambda row: count(row.scheduled), right=True),
    Column("BLOCKED", lambda row: count(row.blocked), right=True),
]
KIND_COLUMNS: list[Column[KindNow]] = [
    Column("KIND", lambda row: row.kind, flexible=True),
    Column("RUNNING", lambda row: count(row.running), right=True, style=lambda row: "green" if row.running else "dim"),
    Column("DUE", lambda row: count(row.due), right=True),
    Column("OLDEST", lambda row: span(timedelta(seconds=row.oldest_age)) if row.due else "", right=True),
    Column("STATE", lambda row: "paused" if row.paused else "", style=lambda row: "red" if row.paused else ""),
    Column(
        "KILLS", lambda row: row.kill_streak or "", right=True, style=lambda row: "yellow" if row.kill_streak else ""
    ),
    Column("SCHEDULED", lambda row: count(row.scheduled), right=True),
    Column("BLOCKED", lambda row: count(row.blocked), right=True),
    Column("POOL", lambda row: row.pool),
]


def worker_columns(now: datetime) -> list[Column[WorkerNow]]:
    return [
        Column("WORKER", lambda row: f"{row.host} {row.pid}", flexible=True),
        Column("RUNNING", lambda row: count(row.running), right=True),
        Column(
            "STATE",
            lambda row: "alive" if row.alive else "lost",
            style=lambda row: "green" if row.alive else "red",
        ),
        Column("UP", lambda row: span(now - row.started_at) if row.alive else "", right=True),
        Column("POOLS", lambda row: ",".join(row.pools)),
        Column("VERSION", lambda row: row.version),
    ]


@dataclass(frozen=True, slots=True)
class Screen:
    """What is to be drawn. `place` names the database; `trouble` is why the last look failed; `scroll` is in kinds."""

    place: str
    moments: Sequence[Moment]
    now: datetime
    trouble: str = ""
    order: str = "waiting"
    scroll: int = 0

    @property
    def scene(self) -> Scene | None:
        return self.moments[-1].scene if self.moments else None

    def headline(self) -> str:
        """The figures of the whole database, in one line."""
        scene = self.scene
        if scene is None:
            return f"{self.place}: looking"
        alive = sum(each.alive for each in scene.workers)
        lost = len(scene.workers) - alive
        speed = rates(self.moments)
        figures = [
            f"{alive} {'worker' if alive == 1 else 'workers'}" + (f", {lost} lost" if lost else ""),
            f"{sum(kind.running for kind in scene.kinds):,} running",
            *([] if speed.arriving is None else [f"{speed.arriving:,.1f}/s arrive"]),
            *([] if speed.ending is None else [f"{speed.ending:,.1f}/s end"]),
        ]
        return f"{self.place}: {', '.join(figures)}"

    def draw(self, width: int, height: int) -> "Group":
        """The screen as rich prints it: never wider or higher than said."""
        from rich.console import Group
        from rich.text import Text

        def line(text: str, style: str) -> Text:
            return Text(first_line(printable(text)), style, no_wrap=True, overflow="ellipsis")

        parts: list[Text | Table] = [line(self.headline(), "bold")]
        if self.trouble:
            parts.append(line(self.trouble, "bold red"))
        foot = line(f"q ends, s sorts (by {self.order}), arrows scroll    {shown(self.now.astimezone(UTC))} UTC", "dim")
        scene = self.scene
        if scene is None:
            return Group(*parts, foot)
        if nobody := unserved(scene):
            parts.append(line(nobody, "bold red"))
        room = height - len(parts) - 1
        of_pools = pools(scene)[: max(0, room - 1)]
        if of_pools:
            parts.append(fitted(POOL_COLUMNS, of_pools, width))
            room -= len(of_pools) + 1
        workers = scene.workers[: max(0, min(len(scene.workers), room // 3, room - LEAST_KINDS - 2))]
        room -= len(workers) + 1 if workers else 0
        kinds = sorted(scene.kinds, key=ORDERS[self.order])[self.scroll :][: max(0, room - 1)]
        if kinds:
            parts.append(fitted(KIND_COLUMNS, kinds, width))
        if workers:
            parts.append(fitted(worker_columns(self.now), workers, width))
        return Group(*parts, foot)


def fitted(columns: Sequence[Column[R]], rows: Iterable[R], width: int) -> "Table":
    """A table of one line a row, no wider than `width`: columns go from the right, and then the first is cut."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    kept = list(rows)
    cells = {
        column.title: [Text(first_line(shown(column.cell(row))), column.style(row)) for row in kept]
        for column in columns
    }
    widths = {title: max(cell_len(title), *(text.cell_len for text in texts)) for title, texts in cells.items()}
    name, *others = columns
    room = width - min(widths[name.title], NARROWEST_NAME)
    used = 0
    fitting: list[Column[R]] = []
    for column in others:
        used += widths[column.title] + GAP
        if used > room:
            break
        fitting.append(column)
    taken = sum(widths[column.title] + GAP for column in fitting)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="reverse", expand=True)
    for column in [name, *fitting]:
        is_name = column is name
        table.add_column(
            column.title,
            justify="right" if column.right else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=1 if is_name else None,
            width=None if is_name else widths[column.title],
            max_width=max(width - taken, 1) if is_name else None,
        )
    for number in range(len(kept)):
        table.add_row(*(cells[column.title][number] for column in [name, *fitting]))
    return table
