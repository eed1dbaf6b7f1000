"""What a worker tells a monitor, over HTTP where `WORKER_HTTP` is set: /metrics, /livez and /readyz.

meter.py        counts as things happen       queue_view.py   what waits, asked of the database for all who scrape
catalog.py      the metrics and their words   exposition.py   them as text
probes.py       is it alive, is it ready      endpoint.py     the HTTP of it
observatory.py  puts these together for one worker
"""
