-- Whether a search by this model's vectors can find anything: where not, it is by words only and says so.
SELECT background_vector_table(CAST(%(model)s AS text), CAST(%(dimensions)s AS integer)) IS NOT NULL
