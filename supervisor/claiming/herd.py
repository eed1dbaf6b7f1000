"""Which of many idle workers claim when a job is notified.

A notification reaches every worker, and one of them takes the job. With a handful of workers each comes at once, and so
does whoever was needed lately; of hundreds of them, nearly all would come in vain. So a worker that came in vain for
`ALL_COME` jobs of one kind in a row comes only to some of the next ones: to `ALL_COME` of as many as it was not needed
for, or as there are workers, if that is fewer. Of hundreds of idle workers some fifty still come: that none does
is next to impossible. While most of them are busy it may happen: then a look finds the job, which each idle worker has
once a second at a moment of its own, and whoever finds it knows that it is needed again.
"""

import random
from collections.abc import Iterable

ALL_COME = 16  # so many that a worker with a dozen others is never spared


class Herd:
    """One worker's part in it, by kind: workers need not all know the same. `size` is how many workers live."""

    def __init__(self, chance: random.Random, size: int = 1) -> None:
        self.size = size
        self._chance = chance
        self._in_vain: dict[str, int] = {}

    def comes(self, kind: str) -> bool:
        """Whether this worker claims for this notification; whoever does tells how it went."""
        in_vain = self._in_vain.get(kind, 0)
        if self._chance.random() * min(in_vain, self.size) < ALL_COME:
            return True
        self._in_vain[kind] = in_vain + 1
        return False

    def came_in_vain(self, kinds: Iterable[str]) -> None:
        """A claim found no job of these kinds."""
        for kind in kinds:
            self._in_vain[kind] = self._in_vain.get(kind, 0) + 1

    def is_needed(self, kinds: Iterable[str]) -> None:
        """Jobs of these kinds were there."""
        for kind in kinds:
            self._in_vain.pop(kind, None)

    def begin_anew(self) -> None:
        """Come to everything again."""
        self._in_vain.clear()
