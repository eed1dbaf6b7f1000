-- The newest minutes, kind by kind, and how many seconds that is.
SELECT a.kind, a.verdicts,
       date_part('epoch', statement_timestamp()
                          - (date_trunc('minute', statement_timestamp()) - CAST(%(span)s AS interval)))
  FROM background_activity AS a
 WHERE a.seconds = 60 AND a.at >= date_trunc('minute', statement_timestamp()) - CAST(%(span)s AS interval)
 ORDER BY a.at, a.kind LIMIT CAST(%(limit)s AS integer)
