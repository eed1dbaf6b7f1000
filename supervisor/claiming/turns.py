"""Whose turn it is among organisations: what one pool's claims hand on from each to the next.

The lines of a kind and priority are a ring, walked by the database (`background_take_turns`). Each worker goes round
for itself, from where its own last claim stopped: no row is shared for that, and no lock.
"""

from collections.abc import Collection, Sequence

from jobs.claim import ClaimedJob, Stop

NOBODY = ""  # stands for the jobs that name no organisation, of all kinds


class Turns:
    """One pool's. Pure."""

    def __init__(self) -> None:
        self._stops: dict[tuple[str, int], Stop] = {}
        self._served: dict[str, None] = {}  # in order: who was served last is the last

    @property
    def stops(self) -> Collection[Stop]:
        """Where the lines of each kind and priority go on."""
        return self._stops.values()

    @property
    def served(self) -> Sequence[str]:
        """The kinds whose lines had a turn, and nobody's jobs; the last one last."""
        return list(self._served)

    def taken(self, jobs: Sequence[ClaimedJob], stops: Collection[Stop]) -> None:
        """A claim took these jobs, and its walks stopped there."""
        for stop in stops:
            self._stops[stop.kind, stop.priority] = stop
        if stops:
            for job in jobs:
                line = NOBODY if job.organization_id is None else job.kind
                self._served.pop(line, None)
                self._served[line] = None
