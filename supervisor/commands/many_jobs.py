"""`oomph jobs retry --all`, `oomph jobs cancel --all`: how many there are, whether, why, then batch after batch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from supervisor.commands.asking import agrees, can_be_asked
from supervisor.commands.database import connected
from supervisor.commands.job_filter import filter_text
from supervisor.commands.options import reason_of, refuse
from supervisor.commands.output import print_json, printable
from supervisor.commands.progress import progress
from supervisor.errors import CommandError
from supervisor.target import bound_statements

if TYPE_CHECKING:
    from jobs.bulk import Done
    from jobs.finding import JobCount, JobFilter

COUNT_MS = 2_000  # of counting, while somebody waits; what is not counted by then is told as "at least"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What is done to many jobs, in words. One of `statuses` has to be in the filter."""

    verb: str
    doing: str
    past: str
    statuses: tuple[str, str]


RETRY = Deed(verb="retry", doing="retrying", past="queued again", statuses=("dead", "cancelled"))
CANCEL = Deed(
    verb="cancel",
    doing="cancelling",
    past="cancelled, or their workers told to end them",
    statuses=("queued", "running"),
)


@dataclass(slots=True)
class _Total:
    """All batches so far."""

    changed: int
    refused: Counter[str]


def do_to_all(
    deed: Deed,
    run: Callable[..., Any],
    wanted: "JobFilter",
    *,
    actor: str,
    reason: str | None,
    yes: bool,
    as_json: bool,
    database: str,
    embedded: Path | None,
) -> None:
    """Do it by `run`, which is one batch of `jobs.bulk`, to all jobs that pass, newest first.

    Each batch is a transaction: what is done stays done, however the command ends. Raises `CommandError`.
    """
    from jobs.finding import count_matching

    if wanted.status not in deed.statuses:
        refuse("--status", f"--all needs it to be {' or '.join(deed.statuses)}: of other jobs there may be millions")
    with connected(database, embedded) as connection:
        count: JobCount = count_matching(connection, wanted, milliseconds=COUNT_MS)
        connection.commit()  # no transaction is open while somebody thinks
        number, chosen = _number(count), printable(filter_text(wanted))
        total = _Total(0, Counter())
        if count.count or count.at_least:
            if yes:
                typer.echo(f"{deed.doing} {number}: {chosen}", err=True)
            elif not can_be_asked():
                refuse("--yes", f"it would {deed.verb} {number} ({chosen}), and nobody can be asked here; add --yes")
            elif not agrees(f"{deed.verb.capitalize()} {number} ({chosen})?"):
                raise CommandError("nothing was done: the answer was not yes")
            why = (reason or "") if yes else reason_of(reason)
            with progress(deed.doing, None if count.at_least else count.count) as step:
                _batches(
                    connection,
                    lambda before: run(connection, wanted, actor=actor, reason=why, before=before),
                    deed,
                    total,
                    step,
                )
    if as_json:
        print_json({"changed": total.changed, "refused": total.refused})
        return
    if not total.changed and not total.refused:
        typer.echo("no such jobs", err=True)
        return
    typer.echo(_told(total, deed))
    for why_not, jobs in total.refused.items():
        typer.echo(f"not {jobs:,}: {printable(why_not)}")


def _batches(
    connection: Any, batch: Callable[[int | None], "Done"], deed: Deed, total: _Total, step: Callable[[int], None]
) -> None:
    import psycopg

    before: int | None = None
    try:
        while True:
            bound_statements(connection)
            done = batch(before)
            connection.commit()
            total.changed += done.changed
            total.refused.update(done.refused)
            step(done.changed + sum(done.refused.values()))
            if (before := done.next_before) is None:
                return
    except psycopg.Error as error:
        if not total.changed:
            raise
        raise CommandError(
            f"it ended early: {str(error).strip()}. {_told(total, deed)}, and perhaps one batch more: that stays; run "
            "this again for the rest"
        ) from error
    except KeyboardInterrupt:
        typer.echo(f"ended early: {_told(total, deed)}; that stays", err=True)
        raise


def _told(total: _Total, deed: Deed) -> str:
    return f"{_jobs(total.changed)} {'is' if total.changed == 1 else 'are'} {deed.past}"


def _number(count: "JobCount") -> str:
    if not count.at_least:
        return _jobs(count.count)
    return f"at least {_jobs(count.count)}" if count.count else "an unknown number of jobs"


def _jobs(number: int) -> str:
    return f"{number:,} {'job' if number == 1 else 'jobs'}"
