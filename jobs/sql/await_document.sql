-- Waits for whoever gives the document a job, before its row is looked at: a row lock that has waited is kept also where
-- the row turns out to have a job by then, and would hold up the claims of all jobs.
SELECT 1 FROM pg_advisory_xact_lock(hashtextextended('background_document ' || CAST(CAST(%(document_id)s AS uuid) AS text), 0))
