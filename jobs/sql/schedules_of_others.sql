-- Before they are declared anew: which of these names another app has declared, so that nobody takes one without a word.
SELECT name, app FROM background_schedules WHERE name = ANY (%(names)s::text[]) AND app <> %(app)s ORDER BY name
