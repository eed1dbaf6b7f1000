"""`spawn_after_commit`: small work without any guarantee, on the service's own loop, after its commit."""

import logging
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

log = logging.getLogger("oomph.spawn")

_WAITING = "oomph: work after the commit"  # in `Session.info`
_running: "set[asyncio.Task[Any]]" = set()  # the loop holds tasks weakly; an unreferenced one may vanish mid-work


@dataclass(slots=True)
class _Work:
    """What waits for the commit of `transaction`, an SQLAlchemy `SessionTransaction`."""

    coroutine: Coroutine[Any, Any, Any]
    loop: "asyncio.AbstractEventLoop"
    transaction: Any

    def is_inside(self, transaction: Any) -> bool:
        inner = self.transaction
        while inner is not None and inner is not transaction:
            inner = inner.parent
        return inner is transaction


def spawn_after_commit(session: Any, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Start `coroutine` on the running loop once `session`'s transaction has committed; never after a rollback.

    `session` is an SQLAlchemy 2 `Session` or `AsyncSession`, or a scoped one. Also a savepoint counts: rolled back to
    before this call, the coroutine is closed and never runs; released, it waits for the commit of the whole. A crash
    of the process loses it; what must happen belongs into `enqueue`. Raises `TypeError` for another connection and
    `RuntimeError` without a running loop.
    """
    import asyncio

    try:
        from sqlalchemy import event
        from sqlalchemy.ext.asyncio import async_scoped_session
        from sqlalchemy.orm import Session, scoped_session

        if isinstance(session, scoped_session | async_scoped_session):
            session = session()
        session = getattr(session, "sync_session", session)
        if not isinstance(session, Session):
            raise TypeError
        loop = asyncio.get_running_loop()
    except (ImportError, TypeError):
        coroutine.close()
        raise TypeError(
            f"spawn_after_commit needs an SQLAlchemy 2 session, not {type(session).__qualname__}: no other connection "
            "tells when it has committed. Start the work after your own commit, or enqueue a job"
        ) from None
    except RuntimeError:
        coroutine.close()
        raise

    transaction = session.get_nested_transaction() or session.get_transaction() or session.begin()
    if _WAITING not in session.info:
        # Listeners stay as long as their session: SQLAlchemy lets none be removed while it calls them.
        session.info[_WAITING] = []
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_transaction_end", _ended)
    session.info[_WAITING].append(_Work(coroutine, loop, transaction))


def _committed(session: Any) -> None:
    waiting: list[_Work] = session.info[_WAITING]
    savepoint = session.get_nested_transaction()
    if savepoint is not None:  # released: from here on it is a part of what is around it
        for work in waiting:
            if work.transaction is savepoint:
                work.transaction = savepoint.parent
        return
    session.info[_WAITING] = []
    for work in waiting:
        task = work.loop.create_task(work.coroutine)
        _running.add(task)
        task.add_done_callback(_finished)


def _ended(session: Any, transaction: Any) -> None:
    # What committed was taken out before, so what is still inside was rolled back or closed.
    waiting: list[_Work] = session.info[_WAITING]
    session.info[_WAITING] = [work for work in waiting if not work.is_inside(transaction)]
    for work in waiting:
        if work.is_inside(transaction):
            work.coroutine.close()


def _finished(task: "asyncio.Task[Any]") -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work after a commit failed: %s", error, exc_info=error)
