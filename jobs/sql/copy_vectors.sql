-- As text, which is the same for vectors of full and of half precision.
COPY {table} (chunk_id, document_id, embedding) FROM STDIN
