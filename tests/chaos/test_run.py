"""A minute of `scripts/chaos`, and what its plan promises. Ten minutes: `scripts/chaos --seconds 600`."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.chaos.plan import EVERY, LASTS, What, make_plan

CHAOS = Path(__file__).parents[2] / "scripts" / "chaos"
SEED = 7


def test_a_seed_makes_one_plan() -> None:
    assert make_plan(1, 60, 3) == make_plan(1, 60, 3)
    assert make_plan(1, 60, 3) != make_plan(2, 60, 3)


def test_a_long_plan_does_everything_and_undoes_what_lasts() -> None:
    plan = make_plan(1, 600, 3)
    assert {step.what for step in plan} == set(What)
    assert set(EVERY) | {undo for undo, _, _ in LASTS.values()} == set(What)
    assert [step.at for step in plan] == sorted(step.at for step in plan)
    for step in plan:
        if step.what in LASTS:
            undo, shortest, longest = LASTS[step.what]
            assert any(
                other.what is undo and other.worker == step.worker and shortest <= other.at - step.at <= longest
                for other in plan
            )


@pytest.mark.timeout(400)
def test_nothing_goes_wrong_while_everything_is_broken() -> None:
    command = [CHAOS, "--seconds", "60", "--workers", "3", "--seed", f"{SEED}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
    assert done.stdout, f"status {done.returncode}: {done.stderr[-4000:]}"
    told = json.loads(done.stdout)
    assert (done.returncode, told["told"]) == (0, []), done.stderr[-8000:]
    assert told["supervisors after"]["zombies"] == 0
    assert told["rescued"] > 0
    assert told["attempts by verdict"]["killed"] > 10
