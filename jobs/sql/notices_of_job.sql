-- What a job has still to bring, oldest first, and how many that are in all.
SELECT notice.id, notice.at, notice.severity, notice.subject, left(notice.body, %(characters)s), notice.event,
       count(*) OVER ()
  FROM background_notice_deliveries AS delivery JOIN background_notices AS notice ON notice.id = delivery.notice_id
 WHERE delivery.job_id = %(job_id)s AND delivery.sent_at IS NULL
 ORDER BY notice.id LIMIT %(limit)s
