-- In a transaction of its own: it locks for a moment what all searches read.
SELECT background_forget_models()
