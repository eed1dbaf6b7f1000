"""What may be taken away from the code, and the test that must notice: the data of `scripts/mutations`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """`find` stands exactly once in `file` and is replaced; each of `tests` must fail then, by itself.

    `hangs` says that a test which only notices by waiting for ever has noticed.
    """

    name: str
    file: str
    find: str
    replace: str
    tests: tuple[str, ...]
    hangs: bool = False

    def applied(self, text: str) -> str:
        """`text` of the file, mutated. Raises `ValueError` where `find` is not there exactly once."""
        if (count := text.count(self.find)) != 1:
            raise ValueError(f"mutation {self.name!r}: {self.find!r} stands {count} times in {self.file}, not once")
        return text.replace(self.find, self.replace)


CLAIMS = "tests/jobs/test_claims.py::"
CONTROL = "tests/jobs/test_control.py::"
BULK = "tests/jobs/test_bulk.py::"
KEYS = "tests/jobs/test_keys.py::"
PAUSE = "tests/jobs/test_pause.py::"
RECOVERY = "tests/jobs/test_recovery.py::"
STATUS = "tests/documents/test_status.py::"
REDACTION = "tests/jobs/test_redaction.py::"
FIELDS = "tests/jobs/test_secret_fields.py::"
SECRETS = "tests/worker/test_secrets.py::"
DELETE = "tests/documents/test_delete.py::"
SCHEDULER = "tests/jobs/test_scheduler.py::"
INTENTS = "tests/pools/test_ingest_intents.py::"
LEFTOVERS = "tests/pools/test_ingest_leftovers.py::"
REACH = "tests/pools/test_reach.py::"
SWEEP = "tests/pools/test_sweep.py::"
MANAGER = "tests/worker/test_service_manager.py::"
RETENTION = "tests/jobs/test_retention.py::"
TURNS = "tests/jobs/test_turns.py::"
UPGRADE = "tests/jobs/test_upgrade.py::"

OLDER = f"{CLAIMS}test_what_an_older_claim_writes_changes_nothing"
ENDED = f"{CLAIMS}test_a_finished_job_stays_as_it_is"
COMPLETE = "jobs/sql/complete.sql"
PROGRESS = "jobs/sql/progress.sql"
FINISH = "jobs/sql/finish.sql"
CLAIM = "jobs/migrations/0011_fairness.sql"
COMPLETION = "jobs/migrations/0003_hot_path.sql"  # of many
PROBE = "jobs/sql/claim_probe.sql"
ADVANCE = "jobs/sql/advance_document.sql"
DOCUMENTS = "jobs/migrations/0004_document_pipeline.sql"
RESCUE = "jobs/sql/lost_jobs.sql"
ACTIONS = "jobs/migrations/0008_operator_view.sql"  # an operator's, of one job or of many
SCHEMA = "jobs/migrations/0001_initial.sql"

SIDE = "= side.is_nobodys"
# How the two updates of the claim begin: without concurrency keys, and with them.
PLAIN = "\n               SET status = 'running', pool = of_pool, "
KEYED = "\n           SET status = 'running', pool = of_pool, "

MUTATIONS = (
    # The fence: (job id, claim number) and the status, in every write about a running job.
    Mutation(
        "a success: the claim number",
        COMPLETE,
        "USING (id, claim)",
        "USING (id)",
        (f"{OLDER}[a_refund-True-success]",),
    ),
    Mutation(
        "a success: the status",
        COMPLETE,
        "job.status = 'running'",
        "true",
        (f"{ENDED}[dead-success]",),
    ),
    Mutation(
        "a success: the lock between look and write",
        COMPLETE,
        "       FOR NO KEY UPDATE OF job\n",
        "",
        (f"{CLAIMS}test_a_write_that_waits_behind_the_end_of_its_claim_is_lost[single success]",),
    ),
    Mutation(
        "many successes: the claim number",
        COMPLETION,
        " AND job.claim = given.claim",
        "",
        (f"{CLAIMS}test_a_batch_tells_an_older_claim_of_a_job_from_the_newest",),
    ),
    Mutation(
        "many successes: the status",
        COMPLETION,
        " AND job.status = running",
        "",
        (f"{ENDED}[dead-success]",),
    ),
    Mutation(
        "many successes: a kind with a streak or a probe",
        COMPLETION,
        "AND job.kind::text <> ALL (troubled)",
        "",
        (f"{PAUSE}test_a_success_in_a_batch_ends_the_streak",),
    ),
    Mutation(
        "progress: the claim number",
        PROGRESS,
        "USING (id, claim)",
        "USING (id)",
        (f"{OLDER}[a_refund-True-progress]",),
    ),
    Mutation(
        "progress: the status",
        PROGRESS,
        "job.status = 'running'",
        "true",
        (f"{OLDER}[a_refund-False-progress]",),
    ),
    Mutation(
        "progress: the lock between look and write",
        PROGRESS,
        "       FOR NO KEY UPDATE OF job SKIP LOCKED\n",
        "",
        (f"{CLAIMS}test_progress_passes_over_what_somebody_holds_and_is_lost_with_its_claim",),
    ),
    Mutation(
        "every other end: the claim number",
        FINISH,
        "AND job.claim = %(claim)s ",
        "",
        (f"{OLDER}[a_refund-True-failure]", f"{OLDER}[a_refund-True-cancel]"),
    ),
    Mutation(
        "every other end: the status",
        FINISH,
        "AND job.status = 'running'",
        "",
        (f"{OLDER}[a_refund-False-failure]", f"{OLDER}[a_refund-False-cancel]"),
    ),
    Mutation(
        "every other end: the lock between look and write",
        FINISH,
        "       FOR UPDATE OF job\n",
        "",
        (f"{CLAIMS}test_a_finish_that_waits_behind_another_finish_of_the_same_claim_is_lost",),
    ),
    Mutation(
        "complete_in: the refusal of a lost claim",
        "jobs/context.py",
        "if not rows:",
        "if False:",
        (f"{CLAIMS}test_complete_in_with_a_lost_lease_takes_the_effects_back[psycopg_connection]",),
    ),
    Mutation(
        "complete_in: the fence of its statement",
        COMPLETE,
        "USING (id, claim)\n     WHERE job.status = 'running'",
        "USING (id)",
        (f"{CLAIMS}test_complete_in_with_a_lost_lease_takes_the_effects_back[psycopg_connection]",),
    ),
    Mutation(
        "what became of a claim: the claim number",
        "jobs/sql/job_by_fence.sql",
        " AND claim = %(claim)s",
        "",
        (f"{CLAIMS}test_a_success_of_a_newer_claim_is_not_that_of_an_older_one",),
    ),
    Mutation(
        "the rescue: the status",
        RESCUE,
        "job.status = 'running' AND ",
        "",
        (f"{RECOVERY}test_a_late_finish_that_comes_first_is_not_overwritten",),
    ),
    Mutation(
        "the rescue: only of workers that are lost",
        RESCUE,
        "w.id = job.worker_id AND w.lost_at IS NULL)",
        "false)",
        (f"{RECOVERY}test_the_jobs_of_an_expired_worker_go_back_charged_with_a_reason",),
    ),
    Mutation(
        "the rescue: its lock",
        RESCUE,
        "   FOR UPDATE OF job SKIP LOCKED",
        "",
        (f"{RECOVERY}test_a_rescue_does_not_wait_for_what_somebody_else_is_settling",),
    ),
    Mutation(
        "lost claims: the claim number",
        "jobs/sql/unknown_claims.sql",
        "(id, claim) NOT IN (SELECT * FROM unnest(%(ids)s::bigint[], %(claims)s::bigint[]))",
        "id <> ALL (%(ids)s::bigint[]) AND cardinality(%(claims)s::bigint[]) >= 0",
        (f"{CLAIMS}test_claims_whose_answer_was_lost_are_given_back_uncharged",),
    ),
    Mutation(
        "a cancel reaches the worker: the status",
        "jobs/sql/cancels.sql",
        "AND status = 'running' ",
        "",
        (f"{CLAIMS}test_a_cancel_that_was_asked_for_wins_over_retry_and_release",),
    ),
    Mutation(
        "an operator's cancel: the status",
        ACTIONS,
        " AND found.status IN ('queued', 'running')",
        "",
        (f"{CONTROL}test_what_does_not_apply_says_why_and_leaves_the_transaction_usable[psycopg_connection]",),
    ),
    Mutation(
        "an operator's cancel: a running job is only asked",
        ACTIONS,
        "ELSE job.status END",
        "ELSE 'cancelled' END",
        (f"{CONTROL}test_a_cancel_of_a_running_job_is_asked_for_once_and_tells_the_workers",),
    ),
    Mutation(
        "an operator's cancel: its lock",
        ACTIONS,
        "WHERE id = of_id FOR UPDATE",
        "WHERE id = of_id",
        (f"{CONTROL}test_a_cancel_that_waits_behind_the_end_of_the_job_changes_nothing",),
    ),
    Mutation(
        "an operator's retry: the status",
        ACTIONS,
        "found.status IN ('dead', 'cancelled') AND found.queued_copy",
        "found.queued_copy",
        (f"{CONTROL}test_what_does_not_apply_says_why_and_leaves_the_transaction_usable[psycopg_connection]",),
    ),
    Mutation(
        "an operator's retry of many: another look, once a copy was queued",
        ACTIONS,
        "FOR try IN 1 .. 3 LOOP",
        "FOR try IN 3 .. 3 LOOP",
        (f"{BULK}test_a_copy_that_is_queued_meanwhile_forbids_the_retry_and_breaks_nothing",),
    ),
    Mutation(
        "a schedule run now: its lock",
        "jobs/sql/lock_schedule.sql",
        "\n   FOR UPDATE OF s",
        "",
        ("tests/jobs/test_run_schedule.py::test_of_two_at_once_one_fires_where_they_must_not_overlap",),
    ),
    Mutation(
        "a removed schedule: its running jobs are left alone",
        "jobs/sql/remove_schedules.sql",
        " AND job.status = 'queued'",
        "",
        (f"{SCHEDULER}test_a_removed_schedule_fires_no_more_and_its_queued_jobs_are_cancelled",),
    ),
    # The charge.
    Mutation(
        "the claim: the charge",
        CLAIM,
        f"{PLAIN}claim = job.claim + 1, attempt = job.attempt + 1",
        f"{PLAIN}claim = job.claim + 1, attempt = job.attempt",
        (f"{CLAIMS}test_the_claim_charges_the_attempt_and_counts_itself",),
    ),
    Mutation(
        "the claim of jobs with keys: the charge",
        CLAIM,
        f"{KEYED}claim = job.claim + 1, attempt = job.attempt + 1",
        f"{KEYED}claim = job.claim + 1, attempt = job.attempt",
        (f"{KEYS}test_jobs_of_a_key_never_overlap_and_all_of_them_finish[1-1000]",),
    ),
    Mutation(
        "the claim: the claim number grows",
        CLAIM,
        f"{PLAIN}claim = job.claim + 1,",
        f"{PLAIN}claim = job.claim,",
        (f"{OLDER}[a_refund-True-success]",),
    ),
    Mutation(
        "the claim of a probe: the charge",
        PROBE,
        "attempt = job.attempt + 1",
        "attempt = job.attempt",
        (f"{PAUSE}test_a_probe_is_charged_and_fenced_as_any_claim",),
    ),
    Mutation(
        "the claim of a probe: the claim number grows",
        PROBE,
        "claim = job.claim + 1",
        "claim = job.claim",
        (f"{PAUSE}test_a_probe_is_charged_and_fenced_as_any_claim",),
    ),
    Mutation(
        "the refund",
        FINISH,
        "job.attempt - %(refund)s::integer",
        "job.attempt - 0 * %(refund)s::integer",
        (f"{CLAIMS}test_a_refund_gives_the_attempt_back_even_of_the_last_one[released]",),
    ),
    Mutation(
        "a kill is charged",
        "jobs/store.py",
        "refund=not verdict.is_charged",
        "refund=True",
        (f"{CLAIMS}test_a_death_is_charged_and_after_the_last_attempt_the_job_is_dead",),
    ),
    # Who may claim what.
    Mutation(
        "the claim: the status",
        CLAIM,
        f"{SIDE} AND job.status = 'queued'\n                      AND NOT job.blocked AND job.run",
        f"{SIDE}\n                      AND NOT job.blocked AND job.run",
        (f"{CLAIMS}test_a_claim_takes_only_what_is_due_and_of_its_kinds",),
    ),
    Mutation(
        "the claim: what somebody holds is passed over",
        CLAIM,
        "                      FOR UPDATE SKIP LOCKED\n",
        "",
        (f"{CLAIMS}test_a_claim_passes_over_what_somebody_holds",),
    ),
    Mutation(
        "the claim: the lease of the worker",
        CLAIM,
        "w.id = worker AND w.lost_at IS NULL AND w.lease_until > clock_timestamp()",
        "w.id = worker AND w.lost_at IS NULL",
        (f"{CLAIMS}test_a_worker_without_a_valid_lease_claims_nothing",),
    ),
    Mutation(
        "the claim: a worker that was found lost",
        CLAIM,
        "w.id = worker AND w.lost_at IS NULL",
        "w.id = worker",
        (f"{CLAIMS}test_a_worker_without_a_valid_lease_claims_nothing",),
    ),
    Mutation(
        "the claim: a paused kind",
        CLAIM,
        "WHERE k.paused_at IS NULL\n",
        "WHERE true\n",
        (f"{PAUSE}test_a_paused_kind_starts_nothing_and_its_running_jobs_finish",),
    ),
    Mutation(
        "the claim of a probe: one only",
        PROBE,
        " AND k.probe_job_id IS NULL",
        "",
        (f"{PAUSE}test_a_probe_lets_exactly_one_job_through_and_its_success_opens_the_kind",),
    ),
    Mutation(
        "the claim of a probe: the lease of the worker",
        PROBE,
        " AND w.lost_at IS NULL AND w.lease_until > clock_timestamp()",
        "",
        (f"{PAUSE}test_a_probe_takes_no_job_whose_key_is_busy_and_no_lost_worker_gets_one",),
    ),
    Mutation(
        "a concurrency key: its lock",
        SCHEMA,
        "IF NOT pg_try_advisory_xact_lock(hashtext('oomph concurrency key'), hashtext(key)) THEN",
        "IF false THEN",
        (f"{KEYS}test_holding_a_key_sees_what_was_committed_since_the_statement_began",),
    ),
    Mutation(
        "a concurrency key: the look under the lock",
        SCHEMA,
        "WHERE busy.status = 'running' AND busy.concurrency_key = background_hold_key.key",
        "WHERE false",
        (f"{KEYS}test_holding_a_key_sees_what_was_committed_since_the_statement_began",),
    ),
    Mutation(
        "a concurrency key: the claim asks for it",
        CLAIM,
        "THEN background_hold_key(placed.concurrency_key)",
        "THEN 'free'",
        (f"{KEYS}test_keys_with_the_same_hash_wait_for_each_other_at_most_for_a_moment",),
    ),
    Mutation(
        "a concurrency key: one of a batch",
        CLAIM,
        "WHEN position = 1\n",
        "WHEN true\n",
        (f"{KEYS}test_a_claim_takes_the_best_of_a_key_and_parks_the_rest",),
    ),
    Mutation(
        "a backlog of a key: parked at once",
        CLAIM,
        "    PERFORM background_park_behind(places);\n",
        "",
        (f"{KEYS}test_a_backlog_of_a_key_is_parked_at_once_and_nothing_else_with_it",),
    ),
    Mutation(
        "a backlog of a key: not behind a job that is just ending",
        CLAIM,
        "LIMIT 1 FOR SHARE SKIP LOCKED) AS holder",
        "LIMIT 1) AS holder",
        (f"{KEYS}test_no_backlog_is_parked_behind_a_job_that_is_just_ending",),
    ),
    Mutation(
        "a concurrency key: the index that two claims cannot get past",
        SCHEMA,
        "CREATE UNIQUE INDEX background_jobs_concurrency",
        "CREATE INDEX background_jobs_concurrency",
        (f"{KEYS}test_two_jobs_of_a_key_cannot_run_whoever_writes_them",),
    ),
    # The lease.
    Mutation(
        "the renewal: the lease",
        "jobs/sql/renew.sql",
        " AND lease_until > clock_timestamp()",
        "",
        (f"{CLAIMS}test_a_lost_worker_cannot_renew",),
    ),
    Mutation(
        "the renewal: a worker that was found lost",
        "jobs/sql/renew.sql",
        " AND lost_at IS NULL",
        "",
        (f"{CLAIMS}test_a_lost_worker_cannot_renew",),
    ),
    Mutation(
        "trust: counted from when the renewal was sent",
        "supervisor/trust.py",
        "sent + self._lease - self._margin",
        "now + self._lease - self._margin",
        ("tests/worker/test_trust.py::test_an_answer_that_took_its_time_does_not_stretch_the_lease",),
    ),
    Mutation(
        "trust: the keeper tells when it sent",
        "supervisor/leases.py",
        "self._trust.renew(sent, time.monotonic())",
        "self._trust.renew(time.monotonic(), time.monotonic())",
        ("tests/worker/test_trust.py::test_the_keeper_counts_from_the_moment_it_asked",),
    ),
    Mutation(
        "trust: the margin",
        "supervisor/trust.py",
        "sent + self._lease - self._margin",
        "sent + self._lease",
        ("tests/worker/test_trust.py::test_an_answer_that_took_its_time_does_not_stretch_the_lease",),
    ),
    Mutation(
        "trust: a renewal leaves time for another",
        "supervisor/trust.py",
        "max(left - another, left / 3)",
        "left",
        ("tests/worker/test_trust.py::test_a_connection_that_falls_silent_just_after_a_renewal_costs_no_lease",),
    ),
    Mutation(
        "trust: once lost, it never comes back",
        "supervisor/trust.py",
        "        if self.holds(now):\n            self._until",
        "        if True:\n            self._lost = False\n            self._until",
        ("tests/worker/test_trust.py::test_an_answer_after_the_end_of_trust_changes_nothing",),
    ),
    Mutation(
        "a worker leaves: not while its jobs run",
        "jobs/sql/deregister.sql",
        "AND status = 'running')",
        "AND false)",
        (f"{CLAIMS}test_a_worker_leaves_only_without_running_jobs",),
    ),
    Mutation(
        "a lost worker is forgotten: not while its jobs run",
        "jobs/sql/forget_workers.sql",
        "AND job.status = 'running')",
        "AND false)",
        (f"{RECOVERY}test_lost_workers_are_forgotten_after_a_day_but_not_while_a_job_names_them",),
    ),
    Mutation(
        "a missed kind: its jobs wait for a worker that comes back",
        "jobs/sql/bury_unknown.sql",
        " - %(missed)s::interval END",
        "END",
        (f"{RECOVERY}test_a_restart_beside_another_apps_worker_does_not_kill_an_old_backlog",),
    ),
    Mutation(
        "a missed kind: since its last worker has left",
        "jobs/sql/deregister.sql",
        "at = greatest(known.at, excluded.at)",
        "at = known.at",
        (f"{RECOVERY}test_a_worker_leaves_at_once_while_a_service_holds_the_rows_of_its_kinds",),
    ),
    Mutation(
        "a missed kind: since its last worker was lost",
        "jobs/sql/bury_unknown.sql",
        "max(greatest(w.lost_at, w.lease_until))",
        "NULL::timestamptz",
        (f"{RECOVERY}test_a_crash_beside_another_apps_worker_does_not_kill_a_backlog",),
    ),
    Mutation(
        "a missed kind: since that worker, once it is forgotten",
        "jobs/sql/forget_workers.sql",
        "max(lost_at)",
        "clock_timestamp()",
        (f"{RECOVERY}test_a_crash_beside_another_apps_worker_does_not_kill_a_backlog",),
    ),
    Mutation(
        "a missed kind: not for as long as there was no worker at all",
        "jobs/sql/bury_unknown.sql",
        "greatest(gone_at, (SELECT min(started_at) FROM live))",
        "gone_at",
        (f"{RECOVERY}test_the_first_worker_after_a_night_without_any_does_not_kill_anothers_backlog",),
    ),
    Mutation(
        "a missed kind: since the first look, where nobody knows",
        "jobs/sql/bury_unknown.sql",
        "WHERE declared AND gone_at IS NULL",
        "WHERE false",
        (f"{RECOVERY}test_a_kind_that_workers_of_an_older_release_knew_is_missed_from_the_first_look_on",),
    ),
    Mutation(
        "a kind that was declared is not misspelt",
        "jobs/sql/bury_unknown.sql",
        "THEN NOT declared",
        "THEN true",
        (f"{RECOVERY}test_a_kind_that_workers_of_an_older_release_knew_is_missed_from_the_first_look_on",),
    ),
    Mutation(
        "a lost lease: what somebody holds keeps nobody from the next one",
        "supervisor/worker.py",
        " or time.monotonic() >= until:",
        ":",
        ("tests/worker/test_leases.py::test_a_row_that_somebody_holds_keeps_no_worker_from_its_next_lease",),
    ),
    Mutation(
        "a pause: what waits for memory is given back",
        "supervisor/attempts.py",
        "execution.stop(Intent.PAUSED)",
        "pass",
        ("tests/worker/test_control.py::test_a_job_that_waits_for_memory_when_its_kind_is_paused_is_given_back",),
    ),
    Mutation(
        "a refund that is refused is no failure",
        "supervisor/outcomes.py",
        "if not report.outcome.verdict.is_charged:",
        "if False:",
        ("tests/worker/test_outcomes.py::test_a_refund_that_the_database_refuses_becomes_no_charged_failure",),
    ),
    Mutation(
        "an outage: the end that it kept from being written is refunded",
        "supervisor/outcomes.py",
        "pending.report = AttemptReport(Returned(Verdict.LEASE_LOST, why), process=pending.report.process)",
        "self._settled(fence)\n                continue",
        ("tests/worker/test_late_outcomes.py::test_it_is_dropped_and_its_refund_is_offered",),
    ),
    Mutation(
        "an outage: what a claim took whose answer was lost with the lease is given back",
        "supervisor/clean_up.py",
        "for each in list(self._lost):",
        "for each in ():",
        ("tests/worker/test_unknown_claims.py::test_they_are_given_back_uncharged",),
    ),
    Mutation(
        "a fail-over: who takes no writes any more is let go of",
        "jobs/database.py",
        "                await connection.close()  # this server lost its role",
        "                pass  # this server lost its role",
        ("tests/servers/test_failover.py::test_a_connection_to_a_server_that_lost_its_role_is_not_kept",),
    ),
    # The streak.
    Mutation(
        "the streak: the lock of the kind",
        "jobs/sql/lock_kind.sql",
        " FOR UPDATE",
        "",
        (f"{PAUSE}test_of_many_kills_at_once_exactly_one_pauses",),
    ),
    Mutation(
        "the streak: one kill for each lost worker and kind",
        "jobs/recovery.py",
        "counts = await counts_as_loss(session, worker_id, kind)",
        "counts = True",
        (f"{RECOVERY}test_a_lost_worker_is_one_kill_for_each_of_its_kinds",),
    ),
    Mutation(
        "the streak: outcomes from before a resume",
        "jobs/sql/resume_kind.sql",
        "generation = k.generation + 1",
        "generation = k.generation",
        (f"{PAUSE}test_outcomes_from_before_the_resume_do_not_count",),
    ),
    # Schedules.
    Mutation(
        "cron: a time that the clock shows twice fires once where it is fixed",
        "jobs/cron.py",
        "            if self._recurs or fold == 0\n        )\n        return min(firsts)",
        "        )\n        return min(firsts)",
        ("tests/jobs/test_cron.py::test_the_written_rule",),
    ),
    Mutation(
        "cron: a changed expression waits for its own next point",
        "jobs/sql/sync_schedule.sql",
        "THEN s.next_occurrence ELSE excluded.next_occurrence END",
        "THEN s.next_occurrence ELSE s.next_occurrence END",
        (f"{SCHEDULER}test_a_changed_expression_or_zone_is_a_new_revision_on_its_own_points",),
    ),
    Mutation(
        "a schedule that fails: it is not waited for",
        "jobs/scheduler.py",
        "if self._aside.get(name, now) <= now",
        "",
        (f"{SCHEDULER}test_a_schedule_that_fails_is_told_once_and_leaves_all_others_alone[the zone]",),
    ),
    Mutation(
        "a schedule that fails: the others are fired",
        "jobs/scheduler.py",
        "        except Exception as error:  # noqa: BLE001",
        "        except ZeroDivisionError as error:  # noqa: BLE001",
        (f"{SCHEDULER}test_a_schedule_that_fails_is_told_once_and_leaves_all_others_alone[the zone]",),
    ),
    Mutation(
        "an occurrence: its uniqueness",
        SCHEMA,
        "CREATE UNIQUE INDEX background_jobs_occurrence",
        "CREATE INDEX background_jobs_occurrence",
        (f"{SCHEDULER}test_an_occurrence_that_exists_is_not_written_again_even_if_the_row_goes_back",),
    ),
    Mutation(
        "an occurrence: one transaction with the advance",
        "jobs/scheduler.py",
        'rows = await session.fetch(\n            "fire_schedule"',
        'rows = await self._database.fetch(\n            "fire_schedule"',
        (f"{SCHEDULER}test_a_tick_that_fails_halfway_fires_again",),
    ),
    Mutation(
        "an occurrence: the advance",
        "jobs/sql/advance_schedule.sql",
        "WHERE name = %(name)s",
        "WHERE name = %(name)s AND false",
        (f"{SCHEDULER}test_a_due_occurrence_becomes_a_job_with_everything_its_task_declares",),
    ),
    Mutation(
        "an occurrence: the lock of the schedule",
        "jobs/sql/take_schedule.sql",
        "   FOR UPDATE SKIP LOCKED",
        "",
        (f"{SCHEDULER}test_a_schedule_whose_row_somebody_holds_does_not_delay_the_others",),
    ),
    # The intent.
    Mutation(
        "the intent: recorded before the kill",
        "pools/execution.py",
        "            self.intent = intent\n",
        "",
        (f"{INTENTS}test_an_intent_ends_the_whole_tree_at_once[cancel-cancelled]",),
    ),
    Mutation(
        "the intent: the first one stays",
        "pools/execution.py",
        "if self.intent is None:\n            self.intent = intent",
        "if True:\n            self.intent = intent",
        (f"{INTENTS}test_the_first_intent_stays",),
    ),
    Mutation(
        "the intent: part of the evidence of a death",
        "pools/ownership.py",
        "self.intent_at_exit = self.execution.intent",
        "self.intent_at_exit = None",
        (f"{INTENTS}test_an_intent_ends_the_whole_tree_at_once[shutdown-released]",),
    ),
    Mutation(
        "the intent: one that comes after the death is none",
        "pools/ownership.py",
        "intent=self.intent_at_exit if self.exited.is_set() else self.execution.intent",
        "intent=self.execution.intent",
        (f"{INTENTS}test_what_is_asked_for_after_the_death_was_not_its_cause",),
    ),
    Mutation(
        "the intent: before everything is killed from a thread",
        "pools/ingest.py",
        "                execution.intent = intent\n",
        "                pass\n",
        (f"{INTENTS}test_everything_can_be_killed_from_a_thread_while_the_loop_is_blocked",),
    ),
    Mutation(
        "the intent: a deadline",
        "pools/life.py",
        "execution.stop, Intent.DEADLINE",
        "self.child.kill",
        (f"{INTENTS}test_a_deadline_stores_the_stack_where_the_job_stood[cook-sleeps-in sleeps]",),
    ),
    Mutation(
        "the intent: memory over the limit",
        "pools/watch.py",
        "child.execution.stop(Intent.MEMORY)",
        "child.kill()",
        (f"{INTENTS}test_helpers_that_are_together_over_the_limit_are_killed_with_their_job",),
    ),
    Mutation(
        "the intent: a lost lease is stronger than a result",
        "pools/verdict.py",
        "if evidence.intent is Intent.LEASE_LOST:",
        "if False:",
        (f"{INTENTS}test_a_result_that_was_complete_before_our_kill_wins_unless_the_lease_is_lost",),
    ),
    # No leftovers.
    Mutation(
        "the kill of the child",
        "pools/life.py",
        "            child.kill()\n            report",
        "            report",
        (f"{INTENTS}test_an_intent_ends_the_whole_tree_at_once[shutdown-released]",),
    ),
    Mutation(
        "the kill of the group",
        "pools/ownership.py",
        "process.kill_group(self.pid)",
        "pass",
        (f"{INTENTS}test_one_signal_ends_the_whole_group_also_of_processes_that_nobody_has_looked_for",),
    ),
    Mutation(
        "the kill of the tree before the report",
        "pools/life.py",
        "remains = tree.kill(self.house.roster.owned(), seconds)",
        "remains = Remains([], is_restless=False)",
        (f"{LEFTOVERS}test_a_daemon_that_left_session_and_parent_is_killed_before_the_report[hold the pipe]",),
    ),
    Mutation(
        "the kill of the tree while the loop is blocked",
        "pools/ownership.py",
        "                self.tree.kill(owned)\n",
        "",
        (f"{INTENTS}test_a_daemon_too_is_killed_from_a_thread_while_the_loop_is_blocked",),
    ),
    Mutation(
        "the tree: orphans by their mark",
        "pools/leftovers.py",
        "mark_of(pid) == self.mark or ",
        "",
        (f"{LEFTOVERS}test_a_daemon_that_left_session_and_parent_is_killed_before_the_report[exec with nothing]",),
    ),
    Mutation(
        "the tree: orphans by their session",
        "pools/leftovers.py",
        ' or parse_stat(slurp(f"/proc/{pid}/stat")).session == self.leader',
        "",
        (f"{LEFTOVERS}test_an_orphan_that_changed_its_mark_is_known_by_its_session",),
    ),
    Mutation(
        "the watch: orphans that no job explains",
        "pools/watch.py",
        "            kill_processes(strays, time.monotonic() + 1)\n",
        "",
        (f"{LEFTOVERS}test_an_orphan_that_nothing_ties_to_its_job_is_ended_by_the_watch",),
    ),
    Mutation(
        "the watch: dead orphans are reaped",
        "pools/watch.py",
        "            elif mark in running or stats([pid]) == [orphan.stat]:",
        "            elif False:",
        (f"{LEFTOVERS}test_an_orphan_that_ends_while_its_job_runs_is_reaped",),
    ),
    Mutation(
        "a job's filter of system calls",
        "pools/enclosure.py",
        "    seccomp.install()\n",
        "",
        (
            f"{REACH}test_a_job_sets_limits_and_priorities_of_itself_only",
            f"{REACH}test_a_job_keeps_its_mark_in_all_its_processes",
            f"{REACH}test_what_would_outlast_the_job_uncounted_is_refused",
        ),
    ),
    Mutation(
        "what root may do is taken from a job",
        "pools/enclosure.py",
        "    capabilities.keep_those_of_files()",
        "    pass",
        (f"{REACH}test_a_job_of_root_keeps_only_the_capabilities_of_files",),
    ),
    Mutation(
        "a /dev/shm of the job's own",
        "pools/nursery.py",
        "shm_mb=limit_mb if house.has_own_shm else 0",
        "shm_mb=0",
        (f"{REACH}test_what_a_job_leaves_in_shared_memory_is_gone_with_it",),
    ),
    Mutation(
        "what lies in a job's /dev/shm is counted",
        "pools/open_files.py",
        "{(0, 0): own_kb(pids)}",
        "{}",
        (f"{REACH}test_what_lies_in_shared_memory_counts_also_when_nobody_has_it_open",),
    ),
    Mutation(
        "the subreaper",
        "pools/ingest.py",
        "        process.adopt_orphans()\n",
        "",
        (f"{LEFTOVERS}test_a_daemon_that_left_session_and_parent_is_killed_before_the_report[hold the pipe]",),
    ),
    Mutation(
        "the sweep of what a dead supervisor left",
        "pools/leftovers.py",
        "return owner_is_gone(mark) and pid_namespace",
        "return False and pid_namespace",
        (f"{SWEEP}test_a_process_that_carries_the_mark_of_a_dead_supervisor_is_swept",),
    ),
    Mutation(
        "a child that finds its gate closed ends",
        "pools/child.py",
        "    if setup is None:\n        return 0\n",
        "    if setup is None:\n        signal.sigtimedwait([], 30)\n        return 0\n",
        (f"{SWEEP}test_a_child_whose_supervisor_died_before_its_gate_never_runs",),
    ),
    Mutation(
        "a child dies with its supervisor",
        "pools/process.py",
        "    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)\n",
        "",
        (f"{SWEEP}test_a_process_that_asked_for_it_dies_with_its_parent",),
    ),
    # Documents: a stage behind the fence, a clean-up after every attempt, an index that goes on serving.
    Mutation(
        "a document's stage: the claim number",
        ADVANCE,
        " AND claim = %(claim)s",
        "",
        (f"{STATUS}test_a_stage_is_written_by_the_claim_that_runs_and_by_no_other",),
    ),
    Mutation(
        "a document's stage: only while its job runs",
        ADVANCE,
        " AND status = 'running'",
        "",
        (f"{STATUS}test_a_stage_is_written_by_the_claim_that_runs_and_by_no_other",),
    ),
    Mutation(
        "a document's stage: holds the job while it is written",
        ADVANCE,
        " FOR SHARE",
        "",
        (f"{STATUS}test_a_stage_that_meets_the_end_of_its_job_waits_for_it_and_writes_nothing",),
    ),
    Mutation(
        "a document's attempt: cleaned up whoever records its end",
        DOCUMENTS,
        "AND OLD.status = 'running' AND NEW.status <> 'succeeded' THEN",
        "AND false THEN",
        (f"{STATUS}test_every_end_of_an_attempt_that_is_no_success_asks_for_a_clean_up[dead-1]",),
    ),
    Mutation(
        "a document that is reindexed: READY again where that comes to nothing",
        DOCUMENTS,
        "WHEN NEW.status = 'succeeded' OR document.ready_at IS NOT NULL THEN 'READY'",
        "WHEN NEW.status = 'succeeded' THEN 'READY'",
        ("tests/documents/test_reindex.py::test_a_reindex_that_is_cancelled_leaves_a_ready_document",),
    ),
    Mutation(
        "a document's clean-up: spares what a running attempt stores",
        "jobs/documents/cleanup.py",
        "for each in (edition, running) if",
        "for each in (edition,) if",
        (f"{DELETE}test_a_clean_up_spares_what_the_document_and_a_running_attempt_call_their_own",),
    ),
    Mutation(
        "a document's deletion: not while its job runs",
        "jobs/documents/delete.py",
        'if status == "running":',
        "if not status:",
        (f"{DELETE}test_nothing_is_deleted_while_a_job_runs",),
    ),
    # Secrets: taken out of what is told before that is cut, of output, of the log, of what readers see.
    Mutation(
        "a secret: taken out of an error before it is cut",
        "pools/errors.py",
        "JobError(*map(redactor.text, told))",
        "JobError(*told)",
        (f"{REDACTION}test_an_error_shows_no_piece_of_a_secret_that_pydantic_or_a_bound_has_cut",),
    ),
    Mutation(
        "a secret: what a validation error shows of its input",
        "jobs/redaction.py",
        'if "input_value=" in text:',
        "if False:",
        (f"{REDACTION}test_an_error_shows_no_piece_of_a_secret_that_pydantic_or_a_bound_has_cut",),
    ),
    Mutation(
        "a secret: output is told by whole lines",
        "pools/redacted.py",
        "if len(self._unfinished) - end <= self._most:",
        "if True:\n            end = len(self._unfinished)",
        (f"{REDACTION}test_output_that_arrives_in_pieces_tells_no_secret",),
    ),
    Mutation(
        "a secret: a log line after its job's end",
        "jobs/redaction.py",
        "_held.set(self)",
        "pass",
        (f"{REDACTION}test_a_log_line_is_redacted_while_anything_of_the_job_is_left",),
    ),
    Mutation(
        "a secret: the second look at a report",
        "supervisor/attempts.py",
        "report = redacted(report, execution.redactor)",
        "pass",
        (f"{SECRETS}test_what_a_pool_itself_says_is_looked_at_too",),
    ),
    Mutation(
        "a secret: a kind that nobody has declared shows no value",
        "jobs/redaction.py",
        "if paths is None:",
        "if not paths and paths is not None:",
        (f"{FIELDS}test_a_kind_that_nobody_has_declared_shows_the_names_of_its_fields_only",),
    ),
    Mutation(
        "a secret: stays one in a release that forgets it",
        "jobs/sql/declare_kinds.sql",
        "k.secret_paths || excluded.secret_paths",
        "excluded.secret_paths",
        (f"{FIELDS}test_what_was_secret_stays_so_in_a_release_that_forgets_it",),
    ),
    # What a service manager is told.
    Mutation(
        "a sign of life: only while work can move",
        "supervisor/service_manager.py",
        "return {} if why_dead or self._notify.watchdog is None",
        "return {} if self._notify.watchdog is None",
        (f"{MANAGER}test_a_worker_in_which_no_work_can_move_gives_no_sign_of_life[path]",),
    ),
    Mutation(
        "readiness: not before the worker takes jobs",
        "supervisor/service_manager.py",
        "if not self._is_ready and not unready:",
        "if not self._is_ready:",
        (f"{MANAGER}test_a_manager_hears_of_the_start_of_work_and_of_the_end[path]",),
    ),
    Mutation(
        "the notify socket: no child has it",
        "supervisor/notify_socket.py",
        'environment.pop("NOTIFY_SOCKET", "")',
        'environment.get("NOTIFY_SOCKET", "")',
        (f"{MANAGER}test_a_manager_hears_of_the_start_of_work_and_of_the_end[path]",),
    ),
    Mutation(
        "turns: each claim goes on where the last one stopped",
        CLAIM,
        "lines.stop AS organization_id, false AS is_round",
        "NULL::text AS organization_id, false AS is_round",
        (f"{TURNS}test_thousands_of_organisations_all_get_their_turn",),
    ),
    Mutation(
        "turns: who was served last comes last",
        CLAIM,
        "c.turn, c.served_at NULLS FIRST, c.kind LIMIT slots",
        "c.turn, c.kind DESC LIMIT slots",
        (f"{TURNS}test_a_flood_in_one_kind_does_not_hold_up_another_kind",),
    ),
    Mutation(
        "a bound of organisations: the lock of the line",
        CLAIM,
        "IF NOT pg_try_advisory_xact_lock(hashtext('oomph line ' || of_kind), hashtext(of_organization)) THEN",
        "IF false THEN",
        (f"{TURNS}test_a_line_that_somebody_else_decides_about_is_asked_for_again",),
    ),
    Mutation(
        "a bound of organisations: over all priorities",
        CLAIM,
        "WHERE found.of_room <= found.room",
        "WHERE true",
        (f"{TURNS}test_a_bound_is_one_over_all_priorities",),
    ),
    Mutation(
        "retention: the newest occurrence of a schedule stays",
        "jobs/sql/remove_jobs.sql",
        "judged.occurrence < (SELECT max",
        "judged.occurrence <= (SELECT max",
        (f"{RETENTION}test_the_newest_occurrence_of_a_schedule_stays_as_long_as_the_schedule",),
    ),
    Mutation(
        "retention: what somebody holds is passed over",
        "jobs/sql/remove_jobs.sql",
        "FOR UPDATE OF job SKIP LOCKED",
        "FOR UPDATE OF job",
        (f"{RETENTION}test_what_somebody_holds_is_left_to_the_next_lap_and_nobody_waits",),
    ),
    Mutation(
        "a migration: an invalid index is built again",
        "jobs/migrate.py",
        "if row is not None and row[0]:\n        return",
        "if row is not None:\n        return",
        (f"{UPGRADE}test_a_run_that_died_while_it_built_an_index_is_made_good_by_the_next",),
    ),
    Mutation(
        "a lane: what one of the calls raises is raised",
        "jobs/lane.py",
        "if (error := next((result for result in results if _has_failed(result)), None)) is not None:",
        "if (error := None) is not None:",
        ("tests/jobs/test_lane.py::test_what_one_of_them_raises_undoes_all",),
    ),
    Mutation(
        "an end and the next claim: together",
        "supervisor/claiming/claims.py",
        "        if queue is None or not goes:",
        "        if goes is not None:",
        ("tests/worker/test_along.py::test_an_end_and_the_next_claim_are_one_transaction",),
    ),
    Mutation(
        "an end and the next claim: only for a slot that is free after all",
        "supervisor/claiming/claims.py",
        "self._attempts.start(pool, jobs[:free],",
        "self._attempts.start(pool, jobs,",
        ("tests/worker/test_along.py::test_what_is_claimed_with_an_end_that_somebody_holds_up_goes_back",),
    ),
    Mutation(
        "an end and the next claim: apart once they failed together",
        "supervisor/outcomes.py",
        "along = alone if any(self._pending[fence].tries for fence in fences) else self._along",
        "along = self._along",
        ("tests/worker/test_along.py::test_an_end_is_written_also_while_no_claim_gets_through",),
    ),
    Mutation(
        "a claim after notifications: of all kinds now and then",
        "supervisor/claiming/pool_queue.py",
        "bool(heard.kinds) and now - self._seen_all <= UNSEEN_SECONDS",
        "bool(heard.kinds)",
        ("tests/worker/test_herd.py::test_a_kind_that_is_always_notified_does_not_keep_others_from_being_seen",),
    ),
    Mutation(
        "the next child: asked whether it lives",
        "pools/nursery.py",
        "if not process.is_over(newborn.pidfd):",
        "if not newborn.exited.is_set():",
        ("tests/pools/test_nursery.py::test_one_that_dies_unnoticed_costs_no_job_anything_either",),
    ),
    Mutation(
        "a claim of named jobs: none with a concurrency key",
        "jobs/sql/claim_named.sql",
        " AND named.concurrency_key IS NULL",
        "",
        ("tests/jobs/test_claim_named.py::test_it_leaves_what_may_have_to_wait[concurrency_key]",),
    ),
    Mutation(
        "a claim of named jobs: none of a paused kind",
        "jobs/sql/claim_named.sql",
        " AND kind.paused_at IS NULL",
        "",
        ("tests/jobs/test_claim_named.py::test_a_paused_kind_starts_nothing",),
    ),
    Mutation(
        "a claim of named jobs: none of a bounded organisation",
        "jobs/sql/claim_named.sql",
        "(job.organization_id IS NULL OR kind.max_per_organization IS NULL)",
        "true",
        ("tests/jobs/test_claim_named.py::test_a_bounded_organisation_is_left_to_who_counts",),
    ),
    Mutation(
        "a claim of named jobs: only with a lease",
        "jobs/sql/claim_named.sql",
        " AND owner.lease_until > clock_timestamp()",
        "",
        ("tests/jobs/test_claim_named.py::test_a_worker_without_a_lease_takes_nothing",),
    ),
    Mutation(
        "an end and the next claim: what was claimed waits for its slot",
        "supervisor/claiming/claims.py",
        "                while self._attempts.free_slots(pool) < slots:",
        "                while slots < 0:",
        ("tests/worker/test_along.py::test_what_is_claimed_with_an_end_that_must_be_written_alone_waits_for_its_slot",),
    ),
)
