INSERT INTO background_document_files (folder, path, size, mtime_ns, document_id, replaces, refused)
VALUES (%(folder)s, %(path)s, %(size)s, %(mtime_ns)s, %(document_id)s, %(replaces)s, %(refused)s)
ON CONFLICT (folder, path) DO UPDATE
   SET size = EXCLUDED.size, mtime_ns = EXCLUDED.mtime_ns, document_id = EXCLUDED.document_id,
       replaces = EXCLUDED.replaces, refused = EXCLUDED.refused
