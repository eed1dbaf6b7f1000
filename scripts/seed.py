"""A database with many jobs, for whoever looks at views: `python -m scripts.seed DATABASE_URL [--jobs N]`.

A week of a fleet with twelve kinds, as one look would find it: nearly all jobs have succeeded, one in a hundred is
dead, one in a hundred waits, a few hundred run. The server makes them: a million take about half a minute. The database
has to be empty; with `--no-analyze` it has no statistics, as after a restore.
"""

import argparse
import time
from typing import Any, LiteralString

import psycopg

from jobs.migrate import migrate

JOBS = 1_000_000

KINDS: LiteralString = """
INSERT INTO background_kinds (kind, pool, priority, max_attempts, timeout, important, kill_streak, paused_at, paused_by,
                              pause_reason)
SELECT given.kind, given.pool, 1, 5, interval '5 minutes', given.kind = 'charge-card',
       CASE given.kind WHEN 'render-video' THEN 5 WHEN 'read-scan' THEN 2 ELSE 0 END,
       CASE given.kind WHEN 'render-video' THEN now() - interval '40 minutes' END,
       CASE given.kind WHEN 'render-video' THEN 'oomph' END,
       CASE given.kind WHEN 'render-video' THEN 'five kills in a row' END
  FROM unnest(ARRAY['send-mail', 'charge-card', 'sync-contact', 'build-report', 'call-webhook', 'refresh-cache',
                    'ask-agent', 'write-draft', 'ingest-document', 'read-scan', 'render-video', 'send-digest'],
              ARRAY['system', 'system', 'system', 'system', 'system', 'system',
                    'agent', 'agent', 'ingest', 'ingest', 'ingest', 'system']) AS given (kind, pool)
"""

WORKERS: LiteralString = """
WITH worker AS (
    INSERT INTO background_workers (id, host, pid, version, pools, kinds, started_at, lease_until, lost_at)
    SELECT gen_random_uuid(), 'host-' || n, 1000 + n, '1.0.0', '{agent,ingest,system}',
           ARRAY(SELECT kind FROM background_kinds), now() - n * interval '1 hour',
           now() + CASE WHEN n = 8 THEN interval '-1 hour' ELSE interval '1 day' END,
           CASE WHEN n = 8 THEN now() - interval '1 hour' END
      FROM generate_series(1, 8) AS n
    RETURNING id, pid
)
INSERT INTO background_worker_states (worker_id, at, memory_mb, children, children_mb, largest_child_mb, template_up,
                                      slots)
SELECT id, now(), 60 + pid %% 10, 3, 900, 512, pid %% 5 <> 0,
       '{"agent": {"used": 40, "total": 100}, "ingest": {"used": 3, "total": 4}, "system": {"used": 7, "total": 10}}'
  FROM worker
"""

JOBS_OF_A_WEEK: LiteralString = """
WITH kind AS (
    SELECT array_agg(kind ORDER BY kind) AS names, array_agg(pool ORDER BY kind) AS pools FROM background_kinds
), worker AS (
    SELECT array_agg(id) AS ids FROM background_workers WHERE lost_at IS NULL
), given AS (
    -- Spread by a hash, so that every kind has jobs in every state.
    SELECT n, now() - interval '7 days' * (%(jobs)s - n) / %(jobs)s AS created_at, 1 + abs(hashint4(n)) %% 12 AS kind,
           CASE WHEN n > %(jobs)s - least(300, %(jobs)s / 100) THEN 'running'
                WHEN n %% 100 = 50 THEN 'queued'
                WHEN n %% 97 = 0 THEN 'dead'
                WHEN n %% 397 = 0 THEN 'cancelled'
                ELSE 'succeeded' END AS status
      FROM generate_series(1, %(jobs)s) AS n
)
INSERT INTO background_jobs (kind, pool, status, payload, organization_id, attempt, claim, run_after, blocked,
                             dedupe_key, concurrency_key, worker_id, created_at, started_at, finished_at, progress,
                             result, error, schedule, occurrence)
SELECT names[kind], pools[kind], status, jsonb_build_object('number', n, 'document_id', md5(n::text)),
       'organization ' || abs(hashint4(n + 1)) %% 200,
       CASE status WHEN 'queued' THEN n %% 3 WHEN 'dead' THEN 5 ELSE 1 END,
       CASE status WHEN 'queued' THEN n %% 3 WHEN 'dead' THEN 5 ELSE 1 END,
       CASE WHEN status = 'queued' AND n / 100 %% 2 = 0 THEN now() + n %% 1000 * interval '1 minute'
            ELSE created_at END,
       status = 'queued' AND n / 100 %% 5 = 1,
       CASE WHEN n %% 10 = 0 THEN 'mail ' || n END,
       CASE WHEN status = 'queued' AND n / 100 %% 5 = 1 OR n %% 20 = 3 THEN 'customer ' || n / 1000 END
           || CASE WHEN status = 'running' THEN ' ' || n ELSE '' END,
       CASE WHEN status <> 'queued' THEN ids[1 + abs(hashint4(n + 2)) %% cardinality(ids)] END,
       created_at,
       CASE WHEN status <> 'queued' THEN created_at + n %% 30 * interval '1 second' END,
       CASE WHEN status NOT IN ('queued', 'running') THEN created_at + n %% 90 * interval '2 seconds' END,
       CASE WHEN status = 'running' THEN n %% 100 / 100.0 END,
       CASE WHEN status = 'succeeded' AND n %% 4 = 0 THEN jsonb_build_object('pages', n %% 50) END,
       CASE WHEN status IN ('dead', 'cancelled')
            THEN jsonb_build_object('type', 'ValueError', 'message', 'no such customer: ' || n, 'frames', '') END,
       CASE WHEN names[kind] = 'send-digest' AND status <> 'queued' THEN 'digest ' || n %% 5 END,
       CASE WHEN names[kind] = 'send-digest' AND status <> 'queued' THEN date_trunc('second', created_at) END
  FROM given, kind, worker ORDER BY n
ON CONFLICT DO NOTHING
"""

ATTEMPTS: LiteralString = """
INSERT INTO background_attempts (job_id, claim, attempt, kind, worker_id, host, pid, started_at, finished_at,
                                 verdict, evidence, charged, is_kill, signal, peak_memory_mb, memory_limit_mb,
                                 cpu_seconds, error, output_tail)
SELECT job.id, n, n, job.kind, job.worker_id, 'host-1', 4711, job.created_at + n * interval '1 minute',
       job.created_at + n * interval '1 minute' + interval '20 seconds',
       CASE WHEN job.pool = 'ingest' THEN 'memory_exceeded' ELSE 'failed' END,
       '{"certainty": "certain", "why": "the limit was 1024 MB, the peak 1023 MB"}', true, job.pool = 'ingest',
       CASE WHEN job.pool = 'ingest' THEN 'SIGKILL' END, CASE WHEN job.pool = 'ingest' THEN 1023 END,
       CASE WHEN job.pool = 'ingest' THEN 1024 END, 3.5, job.error, repeat('reading page 17\n', 20)
  FROM background_jobs AS job CROSS JOIN generate_series(1, 5) AS n WHERE job.status = 'dead'
"""

# Minutes of six hours, quarters of seven days, of each kind and of all together.
ACTIVITY: LiteralString = """
WITH shape AS (
    SELECT ARRAY(SELECT CASE v WHEN 1 THEN 80 WHEN 2 THEN 4 WHEN 3 THEN 1 WHEN 9 THEN 1 ELSE 0 END
                   FROM generate_series(1, 15) AS v) AS verdicts,
           ARRAY[20, 20, 15, 10, 8, 6, 4, 2, 1, 0, 0, 0] AS durations,
           ARRAY(SELECT CASE WHEN b BETWEEN 8 AND 16 THEN 17 - b ELSE 0 END FROM generate_series(1, 26) AS b) AS peaks
), span AS (
    SELECT 60 AS seconds, at FROM generate_series(date_bin('1 minute', now(), 'epoch') - interval '6 hours', now(),
                                                  '1 minute') AS at
    UNION ALL
    SELECT 900, at FROM generate_series(date_bin('15 minutes', now(), 'epoch') - interval '7 days', now(),
                                        '15 minutes') AS at
)
INSERT INTO background_activity (seconds, at, kind, limit_mb, peak_mb, verdicts, waits, runs, peaks)
SELECT span.seconds, span.at, known.kind, CASE WHEN known.has_child THEN 1024 END,
       CASE WHEN known.has_child THEN 700 + extract(epoch FROM at)::bigint / 60 %% 300 END, shape.verdicts,
       shape.durations, shape.durations, CASE WHEN known.has_child THEN shape.peaks ELSE '{}' END
  FROM span, shape,
       (SELECT kind, pool = 'ingest' AS has_child FROM background_kinds UNION ALL SELECT '', false) AS known
"""

OTHERS: tuple[LiteralString, ...] = (
    """
    INSERT INTO background_schedules (name, app, kind, every, misfire, overlap, grace, next_occurrence,
                                      last_occurrence)
    SELECT 'digest ' || n, 'app', 'send-digest', interval '1 hour', 'latest',
           (ARRAY['skip', 'queue', 'allow'])[1 + n %% 3], interval '1 minute', now() + interval '20 minutes',
           now() - interval '40 minutes'
      FROM generate_series(0, 4) AS n
    """,
    """
    INSERT INTO background_audit (at, actor, action, target, reason)
    SELECT now() - n * interval '5 minutes', 'ana', (ARRAY['retry', 'cancel', 'pause'])[1 + n %% 3], 'job ' || n,
           'asked'
      FROM generate_series(1, 2000) AS n
    """,
    """
    INSERT INTO background_notices (at, severity, subject, body)
    SELECT now() - n * interval '30 minutes', (ARRAY['info', 'warning', 'critical'])[1 + n %% 3], 'notice ' || n, 'why'
      FROM generate_series(1, 300) AS n
    """,
)


def seed(db: psycopg.Connection[Any], jobs: int = JOBS, *, analyze: bool = True) -> None:
    """Fill the migrated, empty database of `db`, an autocommit connection."""
    for statement in (KINDS, WORKERS, JOBS_OF_A_WEEK, ATTEMPTS, ACTIVITY, *OTHERS):
        db.execute(statement, {"jobs": jobs})
    if analyze:
        db.execute("VACUUM ANALYZE")


def main() -> None:
    parser = argparse.ArgumentParser(description="Fill an empty database with a week of jobs.")
    parser.add_argument("url", metavar="DATABASE_URL")
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--no-analyze", action="store_true", help="leave it without statistics")
    given = parser.parse_args()
    migrate(given.url)
    began = time.monotonic()
    with psycopg.connect(given.url, autocommit=True) as db:
        seed(db, given.jobs, analyze=not given.no_analyze)
    print(f"{given.jobs:,} jobs in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
