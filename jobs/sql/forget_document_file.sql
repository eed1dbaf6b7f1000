DELETE FROM background_document_files WHERE folder = %(folder)s AND path = %(path)s
