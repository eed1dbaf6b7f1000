"""The declarations of kinds in the database: what the last worker published, for `background_enqueue` and people."""

import logging
from collections.abc import Sequence
from typing import Any

from psycopg import errors

from jobs.database import Session
from jobs.task import Task

log = logging.getLogger("oomph.worker")

LOCK_MS = 50  # for each kind, where they are published one by one


async def publish(session: Session, tasks: Sequence[Task[Any]]) -> None:
    """Write what differs, in the caller's transaction.

    A kind that somebody holds for longer keeps no worker from its start: it is left out, and the log says so. Nothing
    that a worker itself does depends on these rows.
    """
    try:
        await _declare(session, tasks)
    except errors.LockNotAvailable:
        await session.fetch("bound_locks", milliseconds=LOCK_MS)
        for task in tasks:
            try:
                await _declare(session, [task])
            except errors.LockNotAvailable:
                log.warning(
                    "the declaration of %s is not published, because another session holds its row of "
                    "background_kinds; the next start of a worker publishes it",
                    task.kind,
                )


async def _declare(session: Session, tasks: Sequence[Task[Any]]) -> None:
    async with session.savepoint():
        await session.fetch(
            "declare_kinds",
            kinds=[task.kind for task in tasks],
            pools=[str(task.pool) for task in tasks],
            priorities=[int(task.priority) for task in tasks],
            max_attempts=[task.max_attempts for task in tasks],
            timeouts=[task.timeout for task in tasks],
            important=[task.important for task in tasks],
            secret_lines=["\n".join(task.secret_paths) for task in tasks],
            keep_succeeded=[task.retention.succeeded for task in tasks],
            keep_dead=[task.retention.dead for task in tasks],
            max_per_organization=[task.max_per_organization for task in tasks],
            keep_cancelled=[task.retention.cancelled for task in tasks],
        )
