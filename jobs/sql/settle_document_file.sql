-- The new document serves, and the one before it is gone.
UPDATE background_document_files SET replaces = NULL WHERE folder = %(folder)s AND path = %(path)s
