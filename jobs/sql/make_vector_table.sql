-- Before anything else in its transaction: where it makes the table, it locks out who writes chunks.
SELECT relname FROM pg_class WHERE oid = background_make_vector_table(%(model)s, %(dimensions)s)
