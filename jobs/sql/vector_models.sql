-- The models of vectors, each with its table, whose name is this schema's own and needs no quotes.
SELECT 'background_vectors_' || id, model, dimensions FROM background_vector_models
 WHERE to_regclass('background_vectors_' || id) IS NOT NULL
 ORDER BY id
