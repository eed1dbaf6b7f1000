"""`spawn_after_commit`: small work without any guarantee, on the service's own loop, after its commit."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

log = logging.getLogger("oomph.spawn")

_running: set[asyncio.Task[Any]] = set()  # the loop holds tasks weakly; an unreferenced one may vanish mid-work


def spawn_after_commit(session: Any, coroutine: Coroutine[Any, Any, Any]) -> None:
    """Start `coroutine` on the running loop once `session`'s transaction has committed; never after a rollback.

    `session` is an SQLAlchemy 2 `Session` or `AsyncSession`. Also a savepoint counts: rolled back to before this
    call, the coroutine is closed and never runs. A crash of the process loses it; what must happen belongs into
    `enqueue`. Raises `TypeError` for another connection and `RuntimeError` without a running loop.
    """
    session = getattr(session, "sync_session", session)
    try:
        from sqlalchemy import event
        from sqlalchemy.orm import Session, SessionTransaction

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

    registered_in: SessionTransaction | None = (
        session.get_nested_transaction() or session.get_transaction() or session.begin()
    )

    def started(_: Session) -> None:
        forget()
        task = loop.create_task(coroutine)
        _running.add(task)
        task.add_done_callback(_finished)

    def rolled_back(_: Session, ended: Any) -> None:
        scope = registered_in
        while scope is not None:
            if scope is ended:
                drop()
                return
            scope = scope.parent

    def ended(_: Session, transaction: Any) -> None:
        if transaction.parent is None:  # closed without a commit
            drop()

    def drop() -> None:
        forget()
        coroutine.close()

    def forget() -> None:
        for name, listener in listeners.items():
            if event.contains(session, name, listener):
                event.remove(session, name, listener)

    listeners: dict[str, Any] = {
        "after_commit": started,
        "after_soft_rollback": rolled_back,
        "after_transaction_end": ended,
    }
    for name, listener in listeners.items():
        event.listen(session, name, listener)


def _finished(task: asyncio.Task[Any]) -> None:
    _running.discard(task)
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("work after a commit failed: %s", error, exc_info=error)
