-- An event is told once, whoever else sees it too.
INSERT INTO background_notices (event, severity, subject, body)
VALUES (%(event)s, %(severity)s, %(subject)s, %(body)s)
ON CONFLICT (event) DO NOTHING
