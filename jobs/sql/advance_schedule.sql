UPDATE background_schedules
   SET next_occurrence = %(next_occurrence)s, last_occurrence = coalesce(%(fired)s, last_occurrence)
 WHERE name = %(name)s
