"""What a worker tells of itself: into the database for the page, and to a monitor over HTTP.

    meter.py        counts as things happen       histogram.py    what it counts with
    activity.py     writes the counts into the database, for all workers to add up, with how the worker is (vitals.py)

Where `WORKER_HTTP` is set, /metrics, /livez and /readyz:

    meter_view.py   what was counted              queue_view.py   what waits, asked of the database for all who scrape
    catalog.py      the metrics and their words   exposition.py   them as text
    probes.py       is it alive, is it ready      endpoint.py     the HTTP of it
    observatory.py  puts these together for one worker
"""
