"""The declarations: all that the service imports of its background work."""

from datetime import timedelta
from uuid import UUID

from jobs import Payload, Pool, Priority, Task


class SendWelcome(Payload):
    account_id: UUID


SEND_WELCOME = Task(
    kind="send-welcome",
    payload_type=SendWelcome,
    pool=Pool.SYSTEM,
    max_attempts=3,
    timeout=timedelta(minutes=1),
    priority=Priority.INTERACTIVE,
)
