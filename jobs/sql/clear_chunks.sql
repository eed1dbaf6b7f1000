-- With copy_chunks in one transaction: a retry leaves exactly one set of chunks. Their vectors of every model go with them.
DELETE FROM background_document_chunks WHERE document_id = %(document_id)s
