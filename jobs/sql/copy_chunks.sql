COPY background_document_chunks (document_id, position, page, heading, text) FROM STDIN (FORMAT binary)
