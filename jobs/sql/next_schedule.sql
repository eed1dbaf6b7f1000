SELECT extract(epoch FROM min(next_occurrence) - clock_timestamp())::float8
  FROM background_schedules WHERE name = ANY (%(names)s::text[])
