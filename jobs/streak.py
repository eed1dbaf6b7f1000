"""When a kind is paused, and when a probe lets it go again. Pure: no clock, no database."""

from dataclasses import dataclass, replace

from jobs.outcome import Verdict


@dataclass(frozen=True, slots=True)
class KindHealth:
    """What `background_kinds` holds of a kind's health.

    `generation` grows with every resume; `probe` asks, while paused, for exactly one job, which is `probe_job_id`
    once it went.
    """

    kill_streak: int = 0
    generation: int = 0
    paused: bool = False
    probe: bool = False
    probe_job_id: int | None = None


def streak(
    before: KindHealth, verdict: Verdict, *, job_id: int, generation: int, counts: bool, pause_after: int
) -> KindHealth:
    """The kind's health after one attempt ended.

    `generation` is the kind's when the attempt was claimed: outcomes of attempts from before the last resume change
    nothing. `counts` is false for the second job that one lost worker took down. A kind that is paused stays so,
    whatever its last running jobs do, except for its probe: a survivor opens the kind, a kill or a time-out closes
    the probe, and an end without evidence lets the next job be the probe.
    """
    if before.probe_job_id == job_id:
        if verdict.ends_streak:
            return replace(before, kill_streak=0, paused=False, probe=False, probe_job_id=None)
        if verdict.is_kill or verdict is Verdict.TIMED_OUT:
            return replace(before, kill_streak=before.kill_streak + verdict.is_kill, probe=False, probe_job_id=None)
        return replace(before, probe_job_id=None)
    if before.paused or generation != before.generation:
        return before
    if verdict.is_kill and counts:
        kills = before.kill_streak + 1
        return replace(before, kill_streak=kills, paused=kills >= pause_after)
    if verdict.ends_streak:
        return replace(before, kill_streak=0)
    return before
