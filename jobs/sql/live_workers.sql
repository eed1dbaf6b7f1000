-- How many workers live, and which pools any of them serves.
SELECT count(DISTINCT w.id), coalesce(array_agg(DISTINCT pool), '{}')
  FROM background_workers AS w CROSS JOIN LATERAL unnest(w.pools) AS pool
 WHERE w.lost_at IS NULL AND w.lease_until > clock_timestamp()
