"""Every metric of a worker. Names and units are Prometheus' own: seconds, bytes, and `_total` for what only grows.

The labels are bounded: pools, verdicts, states and tables are closed sets, and kinds are those that workers declare, so
many at most as `jobs.queue_sample` and `supervisor.monitor.meter` say. No job, organisation or worker id is ever a
label.

What is told of the queue is the database's and not this worker's: every worker tells the same, so take the `max` of it
over workers and never the sum.
"""

from supervisor.monitor.exposition import Family

ATTEMPTS = Family("oomph_attempts_total", "counter", "Attempts that ended here, by verdict.", ("kind", "verdict"))
DEAD = Family(
    "oomph_jobs_dead_total",
    "counter",
    "Jobs that this worker wrote as dead: after their last attempt, a permanent error, or of a kind that nobody knows.",
    ("kind",),
)
RUN = Family("oomph_attempt_run_seconds", "histogram", "From an attempt's claim to its end.", ("kind",))
WAIT = Family("oomph_job_wait_seconds", "histogram", "From the moment a job was due to its claim.", ("kind",))

CLAIM = Family("oomph_claim_seconds", "histogram", "One claim's way to the database and back.", ("pool",))
OUTCOME = Family(
    "oomph_outcome_write_seconds", "histogram", "One write of outcomes, of up to 500 successes or of one other end."
)
LOOP_LAG = Family(
    "oomph_loop_lag_seconds", "histogram", "How late the event loop came to a call, asked ten times a second."
)
NOTIFY = Family("oomph_notify_round_trip_seconds", "gauge", "The last notification's way through PostgreSQL and back.")
JOBS_REMOVED = Family(
    "oomph_jobs_removed_total",
    "counter",
    "Finished jobs that this worker removed, as old as their retention says, by how they had ended.",
    ("status",),
)
RECORDS_REMOVED = Family(
    "oomph_records_removed_total",
    "counter",
    "Notices and audit records that this worker removed as too old, and old attempts of jobs that stay.",
    ("table",),
)
LEASE = Family("oomph_lease_margin_seconds", "gauge", "For how long this worker may still trust its lease.")
CLOCK = Family("oomph_clock_offset_seconds", "gauge", "How far the database's clock is ahead of this host's.")

SLOTS = Family("oomph_slots", "gauge", "Attempts that may run at once.", ("pool",))
SLOTS_IN_USE = Family(
    "oomph_slots_in_use", "gauge", "Slots held by attempts, until their outcome is written.", ("pool",)
)
CHILDREN = Family("oomph_children", "gauge", "Child processes that live, or are dead and not yet judged.", ("pool",))
CHILDREN_MEMORY = Family(
    "oomph_children_memory_bytes", "gauge", "Memory of all children with what they started, as last seen.", ("pool",)
)
LARGEST_CHILD = Family("oomph_largest_child_memory_bytes", "gauge", "Memory of the largest of them.", ("pool",))
TEMPLATE_UP = Family("oomph_template_up", "gauge", "1 while a template serves that children are forked from.")
TEMPLATE_RESTARTS = Family("oomph_template_restarts_total", "counter", "Templates that had to be started anew.")

WORKER_MEMORY = Family("oomph_worker_memory_bytes", "gauge", "Resident memory of the worker process itself.")
WORKER_CPU = Family("oomph_worker_cpu_seconds_total", "counter", "Processor time of the worker process itself.")
READY = Family("oomph_worker_ready", "gauge", "1 while /readyz says so.")
INFO = Family("oomph_worker_info", "gauge", "Always 1; the release.", ("version",))

QUEUED = Family(
    "oomph_queue_jobs",
    "gauge",
    "Jobs that wait, counted up to oomph_queue_jobs_limit: due now, scheduled for later, or blocked by their "
    "concurrency key. The same from every worker.",
    ("pool", "kind", "state"),
)
QUEUED_LIMIT = Family(
    "oomph_queue_jobs_limit", "gauge", "A count of oomph_queue_jobs that reaches this means: or more."
)
OLDEST = Family(
    "oomph_queue_oldest_age_seconds",
    "gauge",
    "For how long the oldest due job has waited; 0 without one. The same from every worker.",
    ("pool", "kind"),
)
PAUSED = Family(
    "oomph_kind_paused", "gauge", "1 while nothing of the kind starts. The same from every worker.", ("kind",)
)
STREAK = Family("oomph_kind_kill_streak", "gauge", "Kills of the kind in a row. The same from every worker.", ("kind",))
KINDS_LEFT_OUT = Family("oomph_queue_kinds_left_out", "gauge", "Declared kinds beyond those that are told here.")
SAMPLE_OK = Family(
    "oomph_queue_sample_success", "gauge", "1 if the queue could be looked at; else nothing is told of it."
)
SAMPLE_SECONDS = Family("oomph_queue_sample_seconds", "gauge", "What the last look at the queue took.")

CATALOG = (
    *(ATTEMPTS, DEAD, RUN, WAIT, CLAIM, OUTCOME, JOBS_REMOVED, RECORDS_REMOVED, LOOP_LAG, NOTIFY, LEASE, CLOCK),
    *(SLOTS, SLOTS_IN_USE, CHILDREN, CHILDREN_MEMORY, LARGEST_CHILD, TEMPLATE_UP, TEMPLATE_RESTARTS),
    *(WORKER_MEMORY, WORKER_CPU, READY, INFO),
    *(QUEUED, QUEUED_LIMIT, OLDEST, PAUSED, STREAK, KINDS_LEFT_OUT, SAMPLE_OK, SAMPLE_SECONDS),
)
