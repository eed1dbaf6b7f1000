-- What a watched folder held at the last look.
SELECT file.path, file.size, file.mtime_ns, file.document_id, file.replaces, document.status
  FROM background_document_files AS file LEFT JOIN background_documents AS document ON document.id = file.document_id
 WHERE file.folder = %(folder)s
