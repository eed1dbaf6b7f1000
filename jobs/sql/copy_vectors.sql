COPY {table} (chunk_id, document_id, embedding) FROM STDIN
