-- Waits for whoever gives it another job.
SELECT id FROM background_documents WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL FOR UPDATE
