COPY background_document_chunks (id, document_id, position, page, heading, text) FROM STDIN (FORMAT binary)
