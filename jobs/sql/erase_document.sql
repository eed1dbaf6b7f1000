-- The last step of a deletion: nothing is left that the row would have to name.
DELETE FROM background_documents WHERE id = CAST(%(document_id)s AS uuid) AND deleted_at IS NOT NULL RETURNING id
