-- A due job whose kind no live worker knows is dead in the end: nothing here can run it, and waiting in silence would hide
-- that. Of a kind that no worker ever knew, which may be misspelt, a job waits for `grace` after it was due. A kind that one
-- did know is only missed, as while that worker is restarted beside others: its jobs wait also until the kind was missed
-- for as long as `missed`, by workers that live, so that the first one after a night without any does not end them. One of
-- which nobody kept since when (its workers were of an older release) is missed from now on.
-- The owners are told of a kind that no worker ever declared, once a day.
-- Walks the queued kinds one by one through the claim index, and looks at jobs of those alone that are over. Workers publish
-- what they know.
WITH RECURSIVE queued_kind AS (
    (SELECT kind::text AS kind FROM background_jobs WHERE status = 'queued' AND NOT blocked ORDER BY kind LIMIT 1)
    UNION ALL
    SELECT (SELECT job.kind::text FROM background_jobs AS job
             WHERE job.status = 'queued' AND NOT job.blocked AND job.kind > queued_kind.kind
             ORDER BY job.kind LIMIT 1)
      FROM queued_kind WHERE queued_kind.kind IS NOT NULL
), live AS MATERIALIZED (
    SELECT kinds, started_at FROM background_workers WHERE lost_at IS NULL AND lease_until > clock_timestamp()
), unknown AS MATERIALIZED (
    SELECT queued_kind.kind,
           EXISTS (SELECT FROM background_kinds AS k WHERE k.kind = queued_kind.kind AND k.pool IS NOT NULL) AS declared,
           greatest((SELECT known.at FROM background_departures AS known WHERE known.kind = queued_kind.kind),
                    (SELECT max(greatest(w.lost_at, w.lease_until)) FROM background_workers AS w
                      WHERE queued_kind.kind = ANY (w.kinds))) AS gone_at
      FROM queued_kind
     WHERE queued_kind.kind IS NOT NULL AND NOT EXISTS (SELECT 1 FROM live WHERE queued_kind.kind = ANY (live.kinds))
), noted AS (
    INSERT INTO background_departures (kind)
    SELECT kind FROM unknown WHERE declared AND gone_at IS NULL ORDER BY kind
    ON CONFLICT (kind) DO NOTHING
), over AS MATERIALIZED (
    SELECT kind, gone_at FROM unknown
     WHERE CASE WHEN gone_at IS NULL THEN NOT declared
                ELSE greatest(gone_at, (SELECT min(started_at) FROM live)) <= clock_timestamp() - %(missed)s::interval END
), victim AS MATERIALIZED (
    SELECT due.id, over.gone_at FROM over
     CROSS JOIN (VALUES (0::smallint), (1::smallint), (2::smallint)) AS level (priority)
     CROSS JOIN (VALUES (true), (false)) AS side (is_nobodys)
     CROSS JOIN LATERAL (
           SELECT job.id FROM background_jobs AS job
            WHERE job.kind = over.kind AND job.priority = level.priority
              AND (job.organization_id IS NULL) = side.is_nobodys AND job.status = 'queued'
              AND NOT job.blocked AND job.run_after <= statement_timestamp() - %(grace)s::interval
            ORDER BY job.run_after, job.id LIMIT %(limit)s
              FOR UPDATE SKIP LOCKED
           ) AS due
     LIMIT %(limit)s
), buried AS (
    UPDATE background_jobs AS job
       SET status = 'dead', finished_at = clock_timestamp(),
           error = jsonb_build_object('type', 'UnknownKind', 'frames', '',
                                      'message', 'no live worker knows the kind ' || job.kind || CASE
                                      WHEN victim.gone_at IS NULL THEN ', and none ever did: start one whose app has a '
                                      'handler for it, or enqueue by its right name; then retry this job. Where services '
                                      'name kinds before any worker knows them, WORKER_UNKNOWN_KIND_GRACE_SECONDS lets '
                                      'such jobs wait'
                                      ELSE '; the last one that did has been gone for '
                                      || floor(extract(epoch FROM clock_timestamp() - victim.gone_at) / 60)
                                      || ' minutes: start one whose app has a handler for it, then retry this job. '
                                      'WORKER_UNKNOWN_KIND_GRACE_SECONDS lets such jobs wait for longer' END)
      FROM victim
     WHERE job.id = victim.id AND EXISTS (SELECT 1 FROM live)
    RETURNING job.id, job.kind::text AS kind, extract(epoch FROM clock_timestamp() - victim.gone_at)::float8 AS gone
), told AS (
    INSERT INTO background_notices (event, severity, subject, body)
    SELECT format('undeclared-kind:%%s:%%s', kind, to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD')),
           'warning', format('jobs of the kind %%s are dead: no worker ever declared it', kind),
           concat_ws(E'\n',
               format('At least %%s, the first of them job %%s.', count(*), min(id)),
               'Start a worker whose app has a handler for it and retry them, or enqueue by its right name. Where services '
               'name kinds before any worker knows them, WORKER_UNKNOWN_KIND_GRACE_SECONDS lets such jobs wait.',
               format('`oomph jobs list --status dead --kind %%s` lists them all; `oomph jobs retry %%s --actor NAME` '
                      'gives that one its attempts anew.', kind, min(id)))
      FROM buried WHERE gone IS NULL GROUP BY kind ORDER BY kind -- in one order: the same event of another is waited for
    ON CONFLICT (event) DO NOTHING
)
SELECT id, kind, gone FROM buried
