"""What a measurement asks of a system."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib.metadata import version
from typing import Any, ClassVar

import psycopg

from bench.ground import Ground, Place, settle
from bench.processes import Command


class Outcomes(ABC):
    """What is durable of the jobs that were enqueued since this was opened."""

    @abstractmethod
    def any_open(self) -> bool:
        """Whether one of them has no outcome yet."""

    @abstractmethod
    def succeeded(self) -> int:
        """How many of them have succeeded."""


class System(ABC):
    """A queue with one worker. `name` is what the table calls it; `settings` go into the results."""

    distributions: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.settings = dict(settings or {})

    def versions(self) -> dict[str, str]:
        """Of what it is made from."""
        return {distribution: version(distribution) for distribution in self.distributions}

    @abstractmethod
    def place(self, ground: Ground, template: str | None = None) -> Place:
        """A fresh place with its schema."""

    @abstractmethod
    def fill(self, place: Place, numbers: range) -> None:
        """Enqueue a no-op job for each of these numbers, in one go."""

    @abstractmethod
    def worker(self, place: Place) -> Command:
        """How its worker is started."""

    @abstractmethod
    def outcomes(self, place: Place) -> AbstractContextManager[Outcomes]:
        """Opened before the jobs are enqueued."""

    @abstractmethod
    def enqueuer(self, place: Place) -> AbstractContextManager[Callable[[int], object]]:
        """A call that enqueues one no-op job and has committed it when it returns."""

    @abstractmethod
    def settle(self, place: Place) -> None:
        """Called once the jobs are enqueued, before the worker is started."""


class OnPostgreSQL(System):
    """A system whose jobs are rows. The two later queries take the newest id from before the jobs as `%s`.

    They must walk the primary key from there on, whatever the planner thinks of the rest: a million other rows that
    the bench itself reads would be part of what it measures.
    """

    newest: ClassVar[str]
    open_jobs: ClassVar[str]
    successes: ClassVar[str]

    @abstractmethod
    def install(self, url: str) -> None:
        """Its schema, into an empty database."""

    def place(self, ground: Ground, template: str | None = None) -> Place:
        url = ground.database(template)
        if template is None:
            self.install(url)
        return ground.place(url)

    def settle(self, place: Place) -> None:
        settle(place.url)

    @contextmanager
    def outcomes(self, place: Place) -> Iterator[Outcomes]:
        with psycopg.connect(place.url, autocommit=True) as db:
            for scan in ("enable_seqscan", "enable_bitmapscan"):
                db.execute(f"SET {scan} = off".encode())
            newest = _one(db, self.newest)
            yield _Rows(db, newest, self.open_jobs, self.successes)


class _Rows(Outcomes):
    def __init__(self, db: psycopg.Connection[Any], newest: int, open_jobs: str, successes: str) -> None:
        self._db, self._newest, self._open, self._successes = db, newest, open_jobs, successes

    def any_open(self) -> bool:
        return bool(_one(self._db, f"SELECT EXISTS ({self._open})", self._newest))

    def succeeded(self) -> int:
        return int(_one(self._db, self._successes, self._newest))


def _one(db: psycopg.Connection[Any], query: str, *parameters: object) -> Any:
    row = db.execute(query.encode(), parameters or None).fetchone()
    assert row is not None
    return row[0]
