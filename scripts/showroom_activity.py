"""The showroom's past: what its workers counted, minute by minute, as the page draws it."""

import random
from datetime import datetime, timedelta
from typing import Any

import psycopg

from jobs.activity import ALL_KINDS, JOB_BOUNDS, MINUTE, PEAK_BOUNDS_MB, QUARTER, VERDICTS
from jobs.outcome import Verdict

POOLS = {
    "ingest-document": "ingest",
    "extract-tables": "ingest",
    "ask-agent": "agent",
    "summarize-thread": "agent",
    "send-notification": "system",
    "charge-card": "system",
    "send-digest": "system",
}
PER_MINUTE = {"ingest-document": 14, "extract-tables": 3, "ask-agent": 40, "summarize-thread": 11, "charge-card": 2}
SECONDS = {"ingest-document": 6.0, "extract-tables": 20.0, "ask-agent": 9.0, "summarize-thread": 15.0}
LIMIT_MB = 1024


def add_activity(db: psycopg.Connection[tuple[Any, ...]], now: datetime, chance: random.Random) -> None:
    """A day's wave, with an hour of trouble of the kind that is paused now."""
    columns = "seconds, at, kind, limit_mb, peak_mb, verdicts, waits, runs, peaks"
    with db.cursor() as cursor, cursor.copy(f"COPY background_activity ({columns}) FROM STDIN") as copy:
        for seconds, points in ((MINUTE, 360), (QUARTER, 672)):
            newest = datetime.fromtimestamp(now.timestamp() // seconds * seconds, now.tzinfo)
            for at in (newest - timedelta(seconds=seconds * back) for back in range(points)):
                for kind, counts in _span(at, (now - at).total_seconds() / 60, seconds / 60, chance).items():
                    used = (LIMIT_MB, 980.0) if sum(counts[-1]) else (None, None)
                    copy.write_row([seconds, at, kind, *used, *counts])


def _span(at: datetime, age: float, minutes: float, chance: random.Random) -> dict[str, tuple[list[int], ...]]:
    """What each kind counted in a span that began `age` minutes ago; and all of them together."""
    wave = 0.6 + 0.4 * abs(12 - at.hour - at.minute / 60) / 12
    rows = {
        kind: _counted(kind, wave * rate * minutes, is_troubled=20 < age < 80, chance=chance)
        for kind, rate in PER_MINUTE.items()
        if kind != "extract-tables" or age >= 23
    }
    columns = zip(*rows.values(), strict=True)
    return {ALL_KINDS: tuple([sum(each) for each in zip(*column, strict=True)] for column in columns), **rows}


def _counted(kind: str, expected: float, *, is_troubled: bool, chance: random.Random) -> tuple[list[int], ...]:
    """Verdicts, waits, runs and peaks of one span."""
    verdicts, waits, runs = [0] * len(VERDICTS), [0] * (len(JOB_BOUNDS) + 1), [0] * (len(JOB_BOUNDS) + 1)
    peaks = [0] * (len(PEAK_BOUNDS_MB) + 1)
    for _ in range(round(expected * chance.uniform(0.7, 1.3))):
        verdict = Verdict.SUCCEEDED if chance.random() > 0.02 else Verdict.FAILED
        if kind == "extract-tables" and is_troubled and chance.random() < 0.5:
            verdict = Verdict.OOM_KILLED
        verdicts[VERDICTS.index(verdict)] += 1
        waits[_bucket(chance.expovariate(1 / 0.4), JOB_BOUNDS)] += 1
        runs[_bucket(chance.expovariate(1 / SECONDS.get(kind, 0.4)), JOB_BOUNDS)] += 1
        if POOLS[kind] == "ingest":
            used = LIMIT_MB if verdict is Verdict.OOM_KILLED else min(LIMIT_MB, chance.lognormvariate(5.4, 0.6))
            peaks[_bucket(used, PEAK_BOUNDS_MB)] += 1
    return verdicts, waits, runs, peaks


def _bucket(value: float, bounds: tuple[float, ...]) -> int:
    return next((index for index, bound in enumerate(bounds) if value <= bound), len(bounds))
