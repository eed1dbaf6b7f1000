-- Adds what a worker has counted to the present minute and to the present quarter of an hour. In one order for all
-- workers: two that add to the same rows never wait in a circle.
INSERT INTO background_activity AS a (seconds, at, kind, limit_mb, peak_mb, verdicts, waits, runs, peaks)
SELECT span.seconds, date_bin(make_interval(secs => span.seconds), statement_timestamp(), 'epoch'), given.kind,
       given.limit_mb, given.peak_mb, given.verdicts, given.waits, given.runs, given.peaks
  FROM jsonb_to_recordset(%(counts)s::jsonb)
       AS given (kind text, limit_mb integer, peak_mb real, verdicts integer[], waits integer[], runs integer[],
                 peaks integer[])
 CROSS JOIN (VALUES (60), (900)) AS span (seconds)
 ORDER BY span.seconds, given.kind
ON CONFLICT (seconds, at, kind) DO UPDATE
   SET limit_mb = coalesce(excluded.limit_mb, a.limit_mb), peak_mb = greatest(a.peak_mb, excluded.peak_mb),
       verdicts = background_sums(a.verdicts, excluded.verdicts), waits = background_sums(a.waits, excluded.waits),
       runs = background_sums(a.runs, excluded.runs), peaks = background_sums(a.peaks, excluded.peaks)
