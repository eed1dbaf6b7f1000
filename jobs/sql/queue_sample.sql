-- See background_queue in jobs/migrations. Ages come as seconds, because infinity has no difference with a moment.
SELECT kind, pool, paused, kill_streak, kinds, told_at, due, scheduled, blocked,
       date_part('epoch', statement_timestamp()) - date_part('epoch', oldest)
  FROM background_queue(%(kinds)s::integer, %(limit)s::integer)
