-- Whether this database knows any document, one that is being deleted included.
SELECT true FROM background_documents LIMIT 1
