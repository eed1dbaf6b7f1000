"""The two peers on Redis: rq with its forking worker, celery with its prefork pool."""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import redis
from rq import Queue

from bench.ground import Ground, Place
from bench.processes import Command
from bench.systems.base import Outcomes, System

RQ_FUNCTION = "bench.workers.rq_tasks.noop"
RQ_FINISHED = "rq:finished:default"


class OnRedis(System):
    """A system that starts with an empty Redis."""

    def place(self, ground: Ground, template: str | None = None) -> Place:
        assert template is None
        reason = ground.start_redis()
        assert reason is None, reason
        self._results_url = ground.redis_url(1)
        with redis.Redis.from_url(ground.redis_url()) as connection:
            connection.flushall()
        return ground.place(ground.redis_url())

    def settle(self, place: Place) -> None:
        """Redis has nothing to vacuum."""


class Rq(OnRedis):
    """The worker forks for every job; what `preload` names is imported before, as rq's documentation advises."""

    distributions = ("rq", "redis", "hiredis")

    def __init__(self, *, preload: str = "") -> None:
        super().__init__("rq" + (" preloaded" if preload else ""), {"worker": "Worker", "preload": preload})

    def fill(self, place: Place, numbers: range) -> None:
        with _queue(place.url) as queue:
            queue.enqueue_many([Queue.prepare_data(RQ_FUNCTION, (number,)) for number in numbers])

    def worker(self, place: Place) -> Command:
        return Command(["-m", "bench.workers.rq", self.settings["preload"]], place.environment)

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        with _queue(place.url) as queue:
            yield lambda number: queue.enqueue(RQ_FUNCTION, number)

    @contextmanager
    def outcomes(self, place: Place) -> Iterator[Outcomes]:
        with redis.Redis.from_url(place.url) as connection:
            yield _Finished(connection)


class _Finished(Outcomes):
    """The queue, and the registries of jobs in work and of finished ones."""

    def __init__(self, connection: "redis.Redis") -> None:
        self._redis = connection

    def any_open(self) -> bool:
        return bool(self._redis.llen("rq:queue:default") or self._redis.zcard("rq:wip:default"))

    def succeeded(self) -> int:
        return int(self._redis.zcard(RQ_FINISHED))


class Celery(OnRedis):
    """The smallest tree that runs a task in a child: prefork, one process."""

    distributions = ("celery", "billiard", "kombu", "redis", "hiredis")

    def __init__(self) -> None:
        super().__init__("celery prefork -c 1", {"pool": "prefork", "c": "1"})

    def fill(self, place: Place, numbers: range) -> None:
        with self.enqueuer(place) as enqueue:
            for number in numbers:
                enqueue(number)

    def worker(self, place: Place) -> Command:
        arguments = ["-m", "celery", "-A", "bench.workers.celery_app", "worker", "-P", "prefork", "-c", "1"]
        quiet = ["-l", "WARNING", "--without-gossip", "--without-mingle", "--without-heartbeat"]
        return Command([*arguments, *quiet], {**self._environment(place), "C_FORCE_ROOT": "1"})

    @contextmanager
    def enqueuer(self, place: Place) -> Iterator[Callable[[int], object]]:
        os.environ.update(self._environment(place))
        from bench.workers.celery_app import noop

        yield noop.delay

    def outcomes(self, place: Place) -> AbstractContextManager[Outcomes]:
        raise NotImplementedError(f"celery is measured idle only, not at {place.url}")

    def _environment(self, place: Place) -> dict[str, str]:
        return {**place.environment, "BENCH_RESULTS": self._results_url}


@contextmanager
def _queue(url: str) -> Iterator[Queue]:
    with redis.Redis.from_url(url) as connection:
        yield Queue("default", connection=connection)
