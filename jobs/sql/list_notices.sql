-- What the owners are told, newest first, a page at a time by id, and how far each message got.
SELECT notice.id, notice.at, notice.severity, notice.subject, notice.body, notice.read_at, notice.event,
       (SELECT CAST(coalesce(json_agg(json_build_object(
                   'channel', delivery.channel, 'recipient', delivery.recipient, 'job_id', delivery.job_id,
                   'state', CASE WHEN delivery.sent_at IS NOT NULL THEN 'sent'
                                 WHEN job.status IN ('queued', 'running') THEN 'on its way'
                                 ELSE 'failed' END)
                   ORDER BY delivery.channel, delivery.recipient), '[]') AS text)
          FROM background_notice_deliveries AS delivery LEFT JOIN background_jobs AS job ON job.id = delivery.job_id
         WHERE delivery.notice_id = notice.id)
  FROM background_notices AS notice
 WHERE (CAST(%(before)s AS bigint) IS NULL OR notice.id < CAST(%(before)s AS bigint))
   AND (NOT CAST(%(unread)s AS boolean) OR notice.read_at IS NULL)
 ORDER BY notice.id DESC LIMIT CAST(%(limit)s AS integer)
