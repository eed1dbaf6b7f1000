-- Nobody else had submitted it: it may go with its file.
UPDATE background_documents SET is_watched = true WHERE id = %(document_id)s
