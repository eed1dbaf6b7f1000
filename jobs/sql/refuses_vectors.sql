-- In a transaction of its own: it may make the extension.
SELECT background_refuses_vectors()
