-- Which of these schedules are due; each is then taken by itself.
SELECT name FROM background_schedules
 WHERE name = ANY (%(names)s::text[]) AND next_occurrence <= clock_timestamp()
 ORDER BY name
