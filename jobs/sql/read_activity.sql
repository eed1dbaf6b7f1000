-- The last spans of one kind, those without a row too.
SELECT span.at, coalesce(a.verdicts, '{}'), coalesce(a.waits, '{}'), coalesce(a.runs, '{}'), coalesce(a.peaks, '{}'),
       a.peak_mb, a.limit_mb
  FROM (SELECT CAST(%(seconds)s AS integer) AS seconds,
               date_bin(make_interval(secs => CAST(%(seconds)s AS integer)), statement_timestamp(), 'epoch') AS newest
       ) AS given
 CROSS JOIN LATERAL generate_series(
           given.newest - (CAST(%(points)s AS integer) - 1) * make_interval(secs => given.seconds), given.newest,
           make_interval(secs => given.seconds)) AS span (at)
  LEFT JOIN background_activity AS a
         ON a.seconds = given.seconds AND a.kind = CAST(%(kind)s AS text) AND a.at = span.at
 ORDER BY span.at
