"""The declarations: all that the views import of their background work."""

from jobs import Payload, Pool, Task


class CountWords(Payload):
    note_id: int


COUNT_WORDS = Task(kind="count-words", payload_type=CountWords, pool=Pool.SYSTEM, max_attempts=3)
