"""How notices reach the owners: by e-mail and by webhook, from workers that have the settings for it.

    mail_server.py  what SMTP_URL says, pure    outbox.py    what a job has to bring, and that it did
    message.py      a mail, pure                mail.py      sends it
    webhook.py      calls                       webhook_address.py   its address, secret and signature, pure
    whereabouts.py  the page or command of what a notice is of, pure
    dispatch.py     who is to be told of what, as jobs
    sending.py      the above, by the settings

What happened stands in background_notices before anything here runs; see `jobs.notices`. Where only some workers have
the settings, those dispatch and send; the others vouch for the kinds, so that no job of these is buried as unknown.
"""
