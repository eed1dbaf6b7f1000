"""What the owners of a system are told, and the jobs that bring it to them.

    an event -> a row in background_notices, in the event's own transaction, once however many workers see it
             -> a worker that has a mail server or a webhook makes one job for each recipient (`supervisor.notices`)
             -> the job sends one message of all that its recipient is to be told, and notes that it did

A message is sent again only where nobody knows whether the last one arrived, and bears the same id then.
"""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from jobs.connection import Program, Statement, run
from jobs.control import ControlError
from jobs.sql import statement
from jobs.task import Payload, Pool, Task

MAX_RECIPIENT_LENGTH = 320  # of an e-mail address
TRIES = 300  # with back-off some twenty-four hours; a mail server may be away for a night


class SendNotice(Payload):
    """An e-mail to one owner. Which notices are in it stands in background_notice_deliveries."""

    recipient: str


class CallWebhook(Payload):
    """A call of the webhook, which every worker knows for itself: its address may be a secret."""


SEND_NOTICE = Task(
    kind="send-notice",
    payload_type=SendNotice,
    pool=Pool.SYSTEM,
    max_attempts=TRIES,
    timeout=timedelta(minutes=2),
)
CALL_WEBHOOK = Task(
    kind="call-webhook",
    payload_type=CallWebhook,
    pool=Pool.SYSTEM,
    max_attempts=TRIES,
    timeout=timedelta(minutes=2),
)
NOTICE_KINDS = frozenset({SEND_NOTICE.kind, CALL_WEBHOOK.kind})


def mark_read(db: Any, ids: Iterable[int] | None = None) -> Any:
    """Mark notices as read, or with None all of them, in the transaction that `db` has open.

    Returns how many were unread; await it where `db` is asynchronous. Raises `ControlError` where one does not exist.
    Never commits.
    """
    return run(db, _mark_read(None if ids is None else sorted(set(ids))))


def _mark_read(ids: list[int] | None) -> Program[int]:
    rows = yield Statement(statement("read_notices"), {"ids": ids})
    known = {row[0] for row in rows}
    if missing := [number for number in ids or () if number not in known]:
        raise ControlError(f"notice {', '.join(map(str, missing))} does not exist; nothing was marked")
    return sum(row[1] for row in rows)
