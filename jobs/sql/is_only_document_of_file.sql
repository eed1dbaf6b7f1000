-- A document is deleted for a file's sake only where a folder made it, it is not deleted yet, and no other file holds it.
SELECT true FROM background_documents AS document
 WHERE document.id = %(document_id)s AND document.is_watched AND document.deleted_at IS NULL
   AND NOT EXISTS (SELECT FROM background_document_files AS other
                    WHERE %(document_id)s IN (other.document_id, other.replaces)
                      AND (other.folder, other.path) <> (%(folder)s, %(path)s))
