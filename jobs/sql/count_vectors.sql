-- How many vectors a document has in one model's table, which vector_models.sql names.
SELECT count(*) FROM {table} WHERE document_id = CAST(%(document_id)s AS uuid)
