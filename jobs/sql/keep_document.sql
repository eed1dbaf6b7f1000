-- Not deleted before this transaction ends, and no more than that: its job is claimed, gets on and ends as ever. Waits for
-- whoever is deleting it.
SELECT id FROM background_documents WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NULL FOR KEY SHARE
