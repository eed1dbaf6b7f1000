-- Infinity, which a hand may write to hold a schedule, is never due; minus infinity is, and cannot be subtracted everywhere.
SELECT extract(epoch FROM min(greatest(next_occurrence, 'epoch')) - clock_timestamp())::float8
  FROM background_schedules WHERE name = ANY (%(names)s::text[]) AND next_occurrence < 'infinity'
