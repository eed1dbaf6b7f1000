"""What a worker tells of itself: into the database for the page, and to a monitor over HTTP.

    meter.py        counts as things happen       histogram.py    what it counts with
    activity.py     adds the counts up in the database   condition.py   how this worker is, written beside them

Where `WORKER_HTTP` is set, /metrics, /livez and /readyz:

    meter_view.py   what was counted              queue_view.py   what waits, asked of the database for all who scrape
    catalog.py      the metrics and their words   exposition.py   them as text
    probes.py       is it alive, is it ready      vitals.py       the signs of that, read off a worker
    endpoint.py     the HTTP of it                observatory.py  puts these together for one worker

Probes and vitals also serve `supervisor.service_manager`, where a worker has been started by one.
"""
