SELECT background_vector_table(CAST(%(model)s AS text), CAST(%(dimensions)s AS integer)) IS NOT NULL
