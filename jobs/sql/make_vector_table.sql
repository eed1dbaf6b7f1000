-- Before anything else in its transaction: where it makes the table, it locks out who writes chunks.
SELECT background_make_vector_table(%(model)s, %(dimensions)s)
