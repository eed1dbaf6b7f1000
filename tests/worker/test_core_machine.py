"""Random orders of claims, ends, time-outs, cancels, shutdowns, lost leases, new ones and outages, on a virtual clock.

A job that is back in the queue may be claimed again, also while an older claim of it is still at work or being written.

Real: attempts, executions, the loop pool, the writer of outcomes, the trust in the lease, the table of shutdown states.
In memory: the table of jobs, which keeps the fence as PostgreSQL does. The machine's own notes are the model.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import dropwhile

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from jobs import App, Handler, JobContext, Payload, Pool, Snooze, Task
from jobs.claim import ClaimedJob, Fence
from jobs.outcome import AttemptReport, Verdict
from pools.execution import Intent
from pools.loop import CANCEL_GRACE, LoopPool
from supervisor.attempts import Attempts
from supervisor.outcomes import OutcomeWriter
from supervisor.shutdown import Event, State, next_state
from supervisor.trust import Trust
from tests.worker.virtual import Table, VirtualLoop

SLOTS = 3
SHORT, LONG = 4.0, 60.0  # time-outs: one that comes within a lease, one that outlives it
LEASE, MARGIN = 20.0, 5.0
INTENDED = {
    Intent.DEADLINE: Verdict.TIMED_OUT,
    Intent.CANCEL: Verdict.CANCELLED,
    Intent.SHUTDOWN: Verdict.RELEASED,
    Intent.LEASE_LOST: Verdict.LEASE_LOST,
}


class Nothing(Payload):
    pass


TASK = Task(kind="work", payload_type=Nothing, pool=Pool.AGENT)


class Witness(OutcomeWriter):
    """The writer, which also counts the reports that it is given."""

    def __init__(self, table: Table) -> None:
        super().__init__(table)  # type: ignore[arg-type]
        self.reports: Counter[Fence] = Counter()
        self.verdicts: dict[Fence, Verdict] = {}

    def submit(self, fence: Fence, job: ClaimedJob, report: AttemptReport, trusted: object, settled: object) -> None:
        self.reports[fence] += 1
        self.verdicts[fence] = report.outcome.verdict
        super().submit(fence, job, report, trusted, settled)  # type: ignore[arg-type]


class Core(RuleBasedStateMachine):
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        asyncio.set_event_loop(self.loop)
        self.table = Table()
        self.writer = Witness(self.table)
        self.ends: dict[Fence, asyncio.Future[str]] = {}
        self.stubborn: set[Fence] = set()
        app = App([Handler(TASK, self.handler)])
        pools, slots = {Pool.AGENT: LoopPool()}, {Pool.AGENT: SLOTS}
        self.attempts = Attempts(app, self.table, self.writer, pools, slots, lambda *_: None)  # type: ignore[arg-type]
        self.trust = Trust(lease=LEASE, margin=MARGIN, registered_at=self.loop.time())
        self.state = State.RUNNING
        self.events: list[Event] = []
        self.tenure = 0
        self.lost: dict[int, int] = {}  # tenure -> the tries of writes until its lease was lost
        self.tenure_of: dict[Fence, int] = {}
        self.started: dict[Fence, float] = {}  # with its deadline
        self.intents: dict[Fence, Intent] = {}  # the first for each attempt, by our own notes
        self.ended: set[Fence] = set()  # by their own word, before anyone asked them to
        self.writing = self.loop.create_task(self.writer.run())
        self.loop.settle()

    async def handler(self, _: Nothing, job: JobContext) -> None:
        fence = Fence(job.job_id, job.claim)
        while True:
            try:
                how = await asyncio.shield(self.ends[fence])
                break
            except asyncio.CancelledError:
                if fence not in self.stubborn:
                    raise
        if how == "fail":
            raise RuntimeError(how)
        if how == "snooze":
            raise Snooze(timedelta(seconds=1))

    def alive(self) -> list[Fence]:
        return [fence for fence in self.started if not self.writer.reports[fence]]

    def intend(self, fences: list[Fence], intent: Intent) -> None:
        for fence in fences:
            if fence not in self.ended:
                self.intents.setdefault(fence, intent)

    def pass_time(self, seconds: float) -> None:
        """What the worker does as time passes: deadlines, and the end of trust."""
        until = self.loop.now + seconds
        while self.loop.now < until:
            step = min(0.5, until - self.loop.now)
            due = [f for f in self.alive() if self.started[f] <= self.loop.now + step]
            self.intend(due, Intent.DEADLINE)
            self.loop.advance(step)
            if not self.trust.holds(self.loop.now) and self.tenure not in self.lost:
                self.lost[self.tenure] = len(self.table.tries)
                self.intend(self.alive(), Intent.LEASE_LOST)
                self.attempts.stop_all(Intent.LEASE_LOST)
                self.loop.settle()

    @precondition(lambda self: self.attempts.free_slots(Pool.AGENT) > 0)
    @rule(target=running, again=st.booleans(), stubborn=st.booleans(), timeout=st.sampled_from([SHORT, LONG]))
    def claim(self, again: bool, stubborn: bool, timeout: float) -> Fence:
        """A claim is answered; the worker starts its job, or gives it back where it may not start any more."""
        back = [job for job, row in self.table.rows.items() if row.status == "queued"] if again else []
        fence = self.table.claim(back[0] if back else len(self.table.rows) + 1)
        attempt = self.table.rows[fence.id].attempt
        job = ClaimedJob(fence.id, fence.claim, "work", "agent", "{}", attempt, 5, timedelta(seconds=timeout))
        self.tenure_of[fence] = self.tenure
        trusted = partial(lambda trust: trust.holds(self.loop.now), self.trust)
        self.ends[fence] = self.loop.create_future()
        if not trusted():
            self.attempts.give_back(job, trusted, Verdict.LEASE_LOST, "lost")
        elif self.state is not State.RUNNING:
            self.attempts.give_back(job, trusted, Verdict.RELEASED, "shutdown")
        else:
            if stubborn:
                self.stubborn.add(fence)
            self.started[fence] = self.loop.now + timeout
            self.attempts_start(job, trusted)
        self.loop.settle()
        return fence

    def attempts_start(self, job: ClaimedJob, trusted: object) -> None:
        async def start() -> None:
            self.attempts.start(Pool.AGENT, [job], trusted)  # type: ignore[arg-type]

        self.loop.run_until_complete(start())

    @rule(fence=consumes(running), how=st.sampled_from(["succeed", "fail", "snooze"]))
    def end(self, fence: Fence, how: str) -> None:
        if fence in self.started and fence not in self.intents and not self.writer.reports[fence]:
            self.ended.add(fence)
        self.ends[fence].set_result(how)
        self.loop.settle()

    @precondition(lambda self: self.attempts.free_slots(Pool.AGENT) > 0)
    @rule(target=running, fence=consumes(running), how=st.sampled_from(["succeed", "fail", "snooze"]))
    def end_and_be_claimed_again_before_the_answer_comes(self, fence: Fence, how: str) -> Fence:
        """Its outcome is written and not answered; so it is offered again, while a newer claim runs."""
        self.change_network(reachable=True, answers=False)
        self.end(fence, how)
        self.pass_time(0.05)
        return self.claim(again=True, stubborn=False, timeout=LONG)

    @rule(fence=running)
    def cancel(self, fence: Fence) -> None:
        self.intend([fence] if fence in self.alive() else [], Intent.CANCEL)
        self.attempts.cancel([fence])
        self.loop.settle()

    @rule(event=st.sampled_from([Event.SIGNAL, Event.TIMEOUT, Event.FAILURE]))
    def shut_down(self, event: Event) -> None:
        self.events.append(event)
        self.state = next_state(self.state, event)
        if self.state is State.TERMINATING:
            self.intend(self.alive(), Intent.SHUTDOWN)
            self.attempts.stop_all(Intent.SHUTDOWN)
        self.loop.settle()

    @rule(seconds=st.floats(0.01, 12))
    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)

    @precondition(lambda self: self.table.reachable)
    @rule(took=st.floats(0, 4))
    def renew(self, took: float) -> None:
        sent = self.loop.now
        self.pass_time(took)
        self.trust.renew(sent, self.loop.now)

    @rule(reachable=st.booleans(), answers=st.booleans())
    def change_network(self, reachable: bool, answers: bool) -> None:
        self.table.reachable, self.table.answers = reachable, answers

    @precondition(lambda self: self.lost)
    @rule()
    def rescue(self) -> None:
        """The lease has ended in the database too: others settle what was ours."""
        over = [fence for fence, tenure in self.tenure_of.items() if tenure in self.lost]
        self.pass_time(MARGIN)
        self.table.rescue(over)

    @precondition(lambda self: self.tenure in self.lost and self.table.reachable)
    @rule()
    def take_a_new_id(self) -> None:
        """What the lost lease has left may still be at work, or waiting to be written."""
        self.tenure += 1
        self.trust = Trust(lease=LEASE, margin=MARGIN, registered_at=self.loop.now)

    @invariant()
    def a_first_signal_drains_and_whatever_comes_after_it_terminates(self) -> None:
        relevant = list(dropwhile(lambda event: event is Event.TIMEOUT, self.events))
        expected = {0: State.RUNNING, 1: State.DRAINING}.get(len(relevant), State.TERMINATING)
        assert self.state is (State.TERMINATING if Event.FAILURE in relevant else expected)

    @invariant()
    def trust_never_comes_back(self) -> None:
        assert not (self.tenure in self.lost and self.trust.holds(self.loop.now))

    @invariant()
    def no_attempt_has_two_reports(self) -> None:
        assert all(count == 1 for count in self.writer.reports.values())

    @invariant()
    def what_is_written_of_a_claim_is_its_own_report(self) -> None:
        """A stale outcome changes nothing: not of its own claim, once others have settled that, nor of a newer one."""
        for fence, verdict in self.table.applied.items():
            refunded = verdict is Verdict.LEASE_LOST and self.tenure_of[fence] in self.lost
            assert refunded or verdict in (self.writer.verdicts.get(fence), Verdict.WORKER_LOST), fence
        for job, row in self.table.rows.items():
            assert (row.status == "running") == (Fence(job, row.claim) not in self.table.applied)

    @invariant()
    def the_first_intent_is_the_verdict(self) -> None:
        for fence, intent in self.intents.items():
            allowed = {INTENDED[intent]}
            if fence in self.stubborn and self.ends[fence].done():
                allowed.add(Verdict.SUCCEEDED)  # it was told to end, and finished its work in the time of grace
            if fence in self.writer.verdicts:
                assert self.writer.verdicts[fence] in allowed, (fence, intent)
        for fence in self.ended & self.writer.verdicts.keys():
            assert self.writer.verdicts[fence] in (Verdict.SUCCEEDED, Verdict.FAILED, Verdict.SNOOZED)

    @invariant()
    def slots_are_conserved(self) -> None:
        held = [fence for fence in self.started if self.holds_slot(fence)]
        assert self.attempts.free_slots(Pool.AGENT) == SLOTS - len(held)
        assert self.attempts.count == len(held)

    def holds_slot(self, fence: Fence) -> bool:
        """Until its report is settled, and for a stubborn coroutine until that has really ended."""
        unsettled = fence in self.writer.fences or not self.writer.reports[fence]
        return unsettled or (fence in self.stubborn and not self.ends[fence].done())

    @invariant()
    def under_a_lost_lease_only_refunds_are_offered_again_and_again(self) -> None:
        """One more try each may be on its way, and a success is tried once more by itself."""
        for tenure, before in self.lost.items():
            tries = Counter(told for told in self.table.tries[before:] if self.tenure_of[told[0]] == tenure)
            assert all(verdict is Verdict.LEASE_LOST or times <= 2 for (_, verdict), times in tries.items())

    def teardown(self) -> None:
        """Everything ends once the network is whole: each attempt has one report, and every slot is free."""
        self.table.reachable = self.table.answers = True
        self.intend(self.alive(), Intent.SHUTDOWN)
        self.attempts.stop_all(Intent.SHUTDOWN)
        self.loop.advance(CANCEL_GRACE + 10)
        for future in self.ends.values():
            if not future.done():
                future.set_result("succeed")
        self.loop.advance(10)
        try:
            assert self.writer.fences == []
            assert all(self.writer.reports[fence] == 1 for fence in self.started)
            assert self.attempts.free_slots(Pool.AGENT) == SLOTS
            # Of what a lost lease made worthless, the refund is offered until the table answers.
            assert all(fence in self.table.applied for fence in self.writer.verdicts)
            self.the_first_intent_is_the_verdict()
        finally:
            self.writing.cancel()
            self.loop.settle()
            asyncio.set_event_loop(None)
            self.loop.close()


TestCore = Core.TestCase
TestCore.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
