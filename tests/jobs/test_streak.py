"""The streak as a table: what each verdict does to a kind's health, and what must hold for every history."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.outcome import Verdict
from jobs.streak import KindHealth, streak

KILLS = {
    Verdict.MEMORY_EXCEEDED,
    Verdict.OOM_KILLED,
    Verdict.KILLED,
    Verdict.CRASHED,
    Verdict.EXITED,
    Verdict.VANISHED,
    Verdict.WORKER_LOST,
}
SURVIVALS = {Verdict.SUCCEEDED, Verdict.FAILED}
NEITHER = set(Verdict) - KILLS - SURVIVALS


def after(
    before: KindHealth, verdict: Verdict, *, job_id: int = 1, generation: int | None = None, counts: bool = True
) -> KindHealth:
    return streak(
        before,
        verdict,
        job_id=job_id,
        generation=before.generation if generation is None else generation,
        counts=counts,
        pause_after=5,
    )


TWO = KindHealth(kill_streak=2, generation=3)
FOUR = KindHealth(kill_streak=4, generation=3)
PAUSED = KindHealth(kill_streak=5, generation=3, paused=True)
ASKED = KindHealth(generation=4, paused=True, probe=True)
PROBING = KindHealth(generation=4, paused=True, probe=True, probe_job_id=7)


def test_the_verdicts_fall_into_three_sets() -> None:
    assert {verdict for verdict in Verdict if verdict.is_kill} == KILLS
    assert {verdict for verdict in Verdict if verdict.ends_streak} == SURVIVALS
    assert {
        Verdict.TIMED_OUT,
        Verdict.CANCELLED,
        Verdict.RELEASED,
        Verdict.LEASE_LOST,
        Verdict.SPAWN_FAILED,
        Verdict.SNOOZED,
    } == NEITHER


@pytest.mark.parametrize("verdict", Verdict)
def test_an_open_kind(verdict: Verdict) -> None:
    if verdict in KILLS:
        assert after(TWO, verdict) == replace(TWO, kill_streak=3)
        assert after(FOUR, verdict) == replace(FOUR, kill_streak=5, paused=True)
        assert after(TWO, verdict, counts=False) == TWO
    elif verdict in SURVIVALS:
        assert after(FOUR, verdict) == replace(FOUR, kill_streak=0)
    else:
        assert after(FOUR, verdict) == FOUR


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("before", [TWO, FOUR, PAUSED])
def test_an_outcome_from_before_the_last_resume_changes_nothing(before: KindHealth, verdict: Verdict) -> None:
    assert after(before, verdict, generation=2) == before


@pytest.mark.parametrize("verdict", Verdict)
@pytest.mark.parametrize("before", [PAUSED, ASKED, PROBING])
def test_the_last_running_jobs_of_a_paused_kind_change_nothing(before: KindHealth, verdict: Verdict) -> None:
    assert after(before, verdict, job_id=8) == before


@pytest.mark.parametrize("verdict", Verdict)
def test_a_probe_decides(verdict: Verdict) -> None:
    if verdict in SURVIVALS:
        expected = KindHealth(generation=4)
    elif verdict in KILLS:
        expected = KindHealth(kill_streak=1, generation=4, paused=True)
    elif verdict is Verdict.TIMED_OUT:
        expected = KindHealth(generation=4, paused=True)
    else:  # no evidence either way: the next job is the probe
        expected = ASKED
    assert after(PROBING, verdict, job_id=7) == expected


histories = st.lists(st.tuples(st.sampled_from(list(Verdict)), st.integers(1, 3), st.integers(0, 1), st.booleans()))
health = st.builds(
    KindHealth,
    kill_streak=st.integers(0, 6),
    generation=st.integers(0, 1),
    paused=st.booleans(),
)


@given(history=histories, pause_after=st.integers(1, 6))
def test_a_kind_is_paused_exactly_when_the_kills_in_a_row_reach_the_limit(
    history: list[tuple[Verdict, int, int, bool]], pause_after: int
) -> None:
    now, kills, paused = KindHealth(), 0, False
    for verdict, job_id, generation, counts in history:
        now = streak(now, verdict, job_id=job_id, generation=generation, counts=counts, pause_after=pause_after)
        if not paused and generation == 0:
            kills = 0 if verdict in SURVIVALS else kills + (verdict in KILLS and counts)
            paused = kills >= pause_after
        assert (now.kill_streak, now.paused) == (kills, paused)


@given(before=health, history=histories)
def test_only_a_probe_opens_a_paused_kind(before: KindHealth, history: list[tuple[Verdict, int, int, bool]]) -> None:
    now = replace(before, paused=True)
    for verdict, job_id, generation, counts in history:
        now = streak(now, verdict, job_id=job_id, generation=generation, counts=counts, pause_after=5)
        assert now.paused
        assert now.generation == before.generation  # grows by a resume only
