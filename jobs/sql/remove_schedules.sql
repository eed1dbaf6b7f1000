-- A schedule that its app no longer declares fires no more, and what it still has in the queue is cancelled.
-- With each, how many live workers know its kind: one of them may still have declared it.
WITH removed AS (
    DELETE FROM background_schedules WHERE app = %(app)s AND name <> ALL (%(names)s::text[]) RETURNING name, kind
), cancelled AS (
    UPDATE background_jobs AS job
       SET status = 'cancelled', finished_at = clock_timestamp(),
           error = jsonb_build_object('type', 'ScheduleRemoved', 'frames', '',
                                      'message', 'schedule ' || job.schedule || ' was removed')
      FROM removed
     WHERE job.schedule = removed.name AND job.status = 'queued'
    RETURNING job.id
)
SELECT name, (SELECT count(*) FROM cancelled),
       (SELECT count(*) FROM background_workers AS worker
         WHERE removed.kind = ANY (worker.kinds) AND lost_at IS NULL AND lease_until > clock_timestamp())
  FROM removed
