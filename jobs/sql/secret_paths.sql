-- Which fields of these kinds' payloads nobody is shown. A kind without a row has not been declared.
SELECT kind, secret_paths FROM background_kinds WHERE kind = ANY(CAST(%(kinds)s AS text[]))
