-- Which of these kinds a success changes at all: a healthy kind's row is never touched.
SELECT kind FROM background_kinds
 WHERE kind = ANY (%(kinds)s::text[]) AND (kill_streak > 0 OR probe_job_id = ANY (%(ids)s::bigint[]))
 ORDER BY kind
