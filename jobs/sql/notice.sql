INSERT INTO background_notices (severity, subject, body) VALUES (%(severity)s, %(subject)s, %(body)s)
