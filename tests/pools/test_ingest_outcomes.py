"""Every way in which a job can end by itself, in a real process, and the verdict on it."""

import ast
import asyncio
import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from jobs.outcome import Died, Failed, Returned, Snoozed, Succeeded, Verdict
from pools import ownership
from pools.intake import FRAMES
from tests.pools.kitchen import Kitchen, until

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_handler_that_returns_nothing_succeeds_without_evidence(kitchen: Kitchen) -> None:
    report = await kitchen.cook("ok")
    assert report.outcome == Succeeded(None)
    assert report.evidence == {}


@pytest.mark.parametrize("kind", ["cook", "simmer"])
async def test_a_result_comes_back_as_json(kitchen: Kitchen, kind: str) -> None:
    report = await kitchen.cook("result", "é\x00", kind=kind)
    assert isinstance(report.outcome, Succeeded)
    assert report.outcome.result is not None
    assert json.loads(report.outcome.result) == {"text": "é\N{SYMBOL FOR NULL}"}


async def test_a_handler_knows_its_job(kitchen: Kitchen) -> None:
    execution = kitchen.order("context")
    report = await kitchen.pool.run(execution)
    assert report.outcome == Succeeded(f'{{"text":"{execution.job.id} 2 org UTC"}}')


async def test_a_child_owns_only_what_it_was_given(kitchen: Kitchen) -> None:
    report = await kitchen.cook("surroundings")
    assert isinstance(report.outcome, Succeeded)
    facts = ast.literal_eval(json.loads(report.outcome.result or "")["text"])
    # Standard input, output and error, its job socket, the copy of the pipe for crash traces.
    assert facts["descriptors"] == ["/dev/null", "pipe", "pipe", "pipe", "socket"]
    assert facts["core"] == (0, 0)
    assert facts["leads"]
    assert facts["threads"] == 1
    assert facts["oom_score_adj"] >= 600
    assert facts["title"].startswith("oomph: cook job ")
    assert facts["title"].endswith(" attempt 2")
    assert facts["sigterm"]


async def test_an_error_fails_the_attempt_with_its_place(kitchen: Kitchen) -> None:
    report = await kitchen.cook("raises", "x\x00y")
    assert isinstance(report.outcome, Failed)
    assert not report.outcome.permanent
    assert report.outcome.error.type == "ValueError"
    assert report.outcome.error.message == "no such thing: x\N{SYMBOL FOR NULL}y"
    assert "handlers_app.py" in report.outcome.error.frames
    assert "child.py" not in report.outcome.error.frames


@pytest.mark.parametrize("recipe", ["permanent", "declared_permanent"])
async def test_a_permanent_error_is_permanent(kitchen: Kitchen, recipe: str) -> None:
    report = await kitchen.cook(recipe)
    assert isinstance(report.outcome, Failed)
    assert report.outcome.permanent


@pytest.mark.parametrize(
    ("kind", "recipe", "name"),
    [
        ("cook", "interrupts", "KeyboardInterrupt"),
        ("simmer", "cancels", "asyncio.exceptions.CancelledError"),
        ("simmer", "raises", "ValueError"),
    ],
)
async def test_whatever_else_a_handler_raises_is_its_failure(
    kitchen: Kitchen, kind: str, recipe: str, name: str
) -> None:
    report = await kitchen.cook(recipe, kind=kind)
    assert isinstance(report.outcome, Failed)
    assert report.outcome.error.type == name


@pytest.mark.parametrize("text", ["return", "raise"])
async def test_a_copy_that_the_handler_forked_does_not_speak_for_the_job(kitchen: Kitchen, text: str) -> None:
    report = await kitchen.cook("forks_and_returns", text)
    assert report.outcome == Succeeded('{"text":"the job\'s"}')


async def test_a_snooze_is_passed_on(kitchen: Kitchen) -> None:
    report = await kitchen.cook("snooze")
    assert isinstance(report.outcome, Snoozed)
    assert report.outcome.delay.total_seconds() == 420


async def test_an_invalid_payload_is_permanent_and_does_not_show_its_values(kitchen: Kitchen) -> None:
    report = await kitchen.pool.run(kitchen.raw_order('{"recipe": 5, "text": "hunter2", "extra": "hunter3"}'))
    assert isinstance(report.outcome, Failed)
    assert report.outcome.permanent
    assert report.outcome.error.type == "InvalidPayload"
    assert "recipe" in report.outcome.error.message
    assert "extra" in report.outcome.error.message
    assert "hunter" not in report.outcome.error.message
    report = await kitchen.cook("ok", "poison hunter4")
    assert isinstance(report.outcome, Failed)
    assert "text: value error" in report.outcome.error.message
    assert "hunter" not in report.outcome.error.message + report.outcome.error.frames + report.process.output_tail


async def test_a_payload_too_long_for_a_frame_is_permanent(kitchen: Kitchen) -> None:
    report = await kitchen.pool.run(kitchen.raw_order('"' + "x" * (3 << 20) + '"'))
    assert isinstance(report.outcome, Failed)
    assert report.outcome.permanent


async def test_the_largest_payload_and_result_pass(kitchen: Kitchen) -> None:
    report = await kitchen.cook("huge_result", str(500_000))
    assert isinstance(report.outcome, Succeeded)
    report = await kitchen.cook("ok", '"' * 500_000)
    assert report.outcome == Succeeded(None)


@pytest.mark.parametrize(
    ("recipe", "text"), [("huge_result", "600000"), ("wrong_result", ""), ("surrogate_result", "")]
)
async def test_a_result_that_cannot_be_stored_is_a_permanent_failure(kitchen: Kitchen, recipe: str, text: str) -> None:
    report = await kitchen.cook(recipe, text)
    assert isinstance(report.outcome, Failed)
    assert report.outcome.permanent
    assert report.outcome.error.type == "InvalidResult"


@pytest.mark.parametrize(
    "recipe",
    [
        "eat_bytes",
        "eat_small_objects",
        "eat_to_the_brim",
        "eat_numpy",
        "eat_hidden_in_a_cause",
        "eat_threads",
        "helper_aborts",
        "abort_at_the_limit",
    ],
)
async def test_exhausted_memory_is_memory_exceeded(kitchen: Kitchen, recipe: str) -> None:
    """Scenario 2, and with threads scenario 7."""
    report = await kitchen.cook(recipe)
    assert isinstance(report.outcome, Died), report
    assert report.outcome.verdict is Verdict.MEMORY_EXCEEDED
    assert "100 MB" in report.outcome.error.message
    assert report.evidence["certainty"] == ("likely" if recipe == "abort_at_the_limit" else "certain")
    assert report.process.memory_limit_mb == 100
    if recipe in ("eat_bytes", "eat_small_objects", "eat_numpy", "abort_at_the_limit"):
        # Address space that numpy reserves and does not touch counts against the limit, not in the peak.
        assert (60 if recipe == "eat_numpy" else 90) < (report.process.peak_memory_mb or 0) < 110
    if recipe.startswith("eat"):
        assert "handlers_app.py" in report.outcome.error.frames


async def test_a_task_may_have_a_limit_of_its_own(kitchen: Kitchen) -> None:
    report = await kitchen.cook("eat_bytes", kind="nibble")
    assert isinstance(report.outcome, Died)
    assert report.process.memory_limit_mb == 20
    assert 15 < (report.process.peak_memory_mb or 0) < 25


@pytest.mark.parametrize(
    ("recipe", "text", "verdict", "signal", "exit_code"),
    [
        ("abort", "", Verdict.CRASHED, "SIGABRT", None),
        ("segfault", "", Verdict.CRASHED, "SIGSEGV", None),
        ("overflows_stack", "", Verdict.CRASHED, "SIGSEGV", None),
        ("signal_itself", "SIGILL", Verdict.CRASHED, "SIGILL", None),
        ("signal_itself", "SIGBUS", Verdict.CRASHED, "SIGBUS", None),
        ("signal_itself", "SIGFPE", Verdict.CRASHED, "SIGFPE", None),
        ("signal_itself", "SIGXCPU", Verdict.CRASHED, "SIGXCPU", None),
        ("signal_itself", "SIGSYS", Verdict.CRASHED, "SIGSYS", None),
        ("signal_itself", "SIGKILL", Verdict.KILLED, "SIGKILL", None),
        ("signal_itself", "SIGTERM", Verdict.KILLED, "SIGTERM", None),
        ("hard_exit", "3", Verdict.EXITED, None, 3),
        ("soft_exit", "3", Verdict.EXITED, None, 3),
        ("hard_exit", "0", Verdict.VANISHED, None, 0),
        ("soft_exit", "0", Verdict.VANISHED, None, 0),
    ],
)
async def test_a_death_without_a_word_is_judged_by_its_status(
    kitchen: Kitchen, recipe: str, text: str, verdict: Verdict, signal: str | None, exit_code: int | None
) -> None:
    """Scenarios 8 and 9."""
    report = await kitchen.cook(recipe, text)
    assert isinstance(report.outcome, Died), report
    assert report.outcome.verdict is verdict
    assert (report.process.signal, report.process.exit_code) == (signal, exit_code)
    assert report.process.pid is not None
    assert report.process.cpu_seconds is not None
    assert report.evidence["certainty"] == "certain"
    if signal == "SIGKILL":
        assert "did not move" in report.outcome.error.message
    if recipe == "segfault":
        assert report.outcome.error.frames.startswith("Fatal Python error: Segmentation fault")
        assert "handlers_app.py" in report.outcome.error.frames
        assert "Extension modules" not in report.outcome.error.frames
    if recipe == "abort" or text in ("SIGILL", "SIGBUS", "SIGFPE"):
        assert f"in {recipe}" in report.outcome.error.frames
    if recipe == "overflows_stack":
        assert "in compare" in report.outcome.error.frames


async def test_a_thread_that_exits_is_not_the_process(kitchen: Kitchen) -> None:
    """Scenario 9: `sys.exit(3)` in a thread."""
    report = await kitchen.cook("thread_exits")
    assert report.outcome == Succeeded('{"text":"the process goes on"}')


async def test_a_helper_killed_by_somebody_is_no_memory_death_when_no_counter_moved(kitchen: Kitchen) -> None:
    report = await kitchen.cook("helper_is_killed")
    assert isinstance(report.outcome, Failed)
    assert "did not move" in report.evidence["why"]


@pytest.mark.parametrize(
    "frame",
    [
        "ffffffff",  # announces 4 GiB
        "00000002" + b"[]".hex(),
        "00000005" + b"{".hex() + "ff" * 4,
        "00001000" + "5b" * 4096,  # nested deeper than any parser goes
        "0000",  # unfinished
        "00000010aa",  # unfinished
        "00000021" + b'{"frame":"success","result":"{"} '.hex(),
        "00000042" + b'{"frame":"progress","fraction":NaN,"note":"x"}'.hex(),
        "0000001f" + b'{"frame":"unborn","why":"fake"}'.hex(),  # which would never be charged
    ],
)
async def test_a_frame_that_is_none_leaves_the_supervisor_unharmed(kitchen: Kitchen, frame: str) -> None:
    """Scenario 11."""
    report = await kitchen.cook("frame_garbage", frame)
    if frame in ("0000", "00000010aa"):
        # The honest frame that follows is swallowed by the unfinished one.
        assert isinstance(report.outcome, Died)
    assert report.outcome.verdict in (Verdict.VANISHED, Verdict.EXITED), report
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)


async def test_a_flood_of_frames_costs_the_loop_little_and_loses_no_result(kitchen: Kitchen) -> None:
    floods = [asyncio.create_task(kitchen.cook("frame_flood", "1.5")) for _ in range(3)]
    await until(lambda: kitchen.pool.children == 3)
    flooding = list(kitchen.pool._roster.children.values())
    assert (await kitchen.cook("ok")).outcome == Succeeded(None)
    for report in await asyncio.gather(*floods):
        assert isinstance(report.outcome, Succeeded)
    # What its socket held at its end, and a few pieces a second before.
    assert all(child.frames.count < 12_000 for child in flooding), [child.frames.count for child in flooding]


async def test_a_complete_result_wins_over_the_death_after_it(kitchen: Kitchen) -> None:
    """Scenario 10."""
    report = await kitchen.cook("result_then_kill")
    assert report.outcome == Succeeded("7")
    assert "SIGKILL" in report.evidence["why"]
    assert report.process.signal == "SIGKILL"


async def test_a_result_that_waited_unread_when_its_sender_died_is_still_read(
    kitchen: Kitchen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "FRAMES", replace(FRAMES, bytes_per_second=1))
    running = asyncio.create_task(kitchen.cook("result_after", str(tmp_path / "go")))
    await until(lambda: kitchen.progress != [])
    (tmp_path / "go").touch()
    assert (await running).outcome == Succeeded("7")


async def test_progress_is_thinned_out_and_its_last_word_arrives(kitchen: Kitchen) -> None:
    await kitchen.cook("progress")
    assert 1 <= len(kitchen.progress) <= 10
    assert kitchen.progress[-1] == (1.0, "the last")
    assert kitchen.progress == sorted(kitchen.progress)


async def test_output_is_logged_with_the_job_and_kept(kitchen: Kitchen, caplog: pytest.LogCaptureFixture) -> None:
    execution = kitchen.order("prints", "hello")
    report = await kitchen.pool.run(execution)
    lines = [record.getMessage() for record in caplog.records if record.name == "oomph.job"]
    assert lines == [
        f"job {execution.job.id} attempt 2: hello",
        f"job {execution.job.id} attempt 2: hello to stderr",
    ]
    assert report.process.output_tail == "hello\nhello to stderr\n"


async def test_a_record_of_a_jobs_log_keeps_its_level_in_the_workers(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "oomph.job"):
        assert (await kitchen.cook("logs", "page 3 is empty")).outcome == Succeeded(None)
    (record,) = [record for record in caplog.records if "page 3 is empty" in record.getMessage()]
    assert (record.name, record.levelname) == ("oomph.job", "WARNING")


async def test_a_flood_of_output_is_cut_in_the_log_and_counted(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    flood, other = await asyncio.gather(kitchen.cook("floods", "1000"), kitchen.cook("ok"))
    assert flood.outcome == other.outcome == Succeeded(None)
    assert len(flood.process.output_tail) == 64 << 10
    messages = [record.getMessage() for record in caplog.records if record.name == "oomph.job"]
    assert len(messages) < 5_000
    dropped = [r for r in caplog.records if r.name == "oomph.job" and r.levelno == logging.WARNING]
    assert dropped
    assert "dropped" in dropped[-1].getMessage()


async def test_a_line_without_end_and_control_characters_cannot_forge_the_log(
    kitchen: Kitchen, caplog: pytest.LogCaptureFixture
) -> None:
    report = await kitchen.cook("prints_without_end")
    assert report.outcome == Succeeded(None)
    messages = [record.getMessage() for record in caplog.records if record.name == "oomph.job"]
    assert max(map(len, messages)) < 4200
    assert messages[-1].endswith(r"\xff\x00\x1b[31mred")
    assert "\x00" not in report.process.output_tail


async def test_children_are_counted_while_they_run(kitchen: Kitchen) -> None:
    assert kitchen.pool.template_up
    assert (kitchen.pool.template_mb or 0) > 1
    assert kitchen.pool.children == 0


async def test_a_kind_the_template_does_not_know_is_given_back(kitchen: Kitchen) -> None:
    execution = kitchen.order("ok")
    execution.job = execution.job._replace(kind="unheard-of")
    report = await kitchen.pool.run(execution)
    assert isinstance(report.outcome, Returned)
    assert report.outcome.verdict is Verdict.SPAWN_FAILED
    assert "unheard-of" in report.outcome.why
