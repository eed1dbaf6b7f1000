"""`oomph doctor`: what of this host, this app and this database would keep a worker from its promises.

    reading (I/O, bounded)  ->  check (pure)  ->  Finding: ok, warning or error, what was found, what to do

    examination.py   the order of the checks, and the bound on all of them
    findings.py      what a check answers, and how one that fails does not stop the others
    host.py          readings of this host         host_checks.py      what they mean
    cgroup.py        the same for its cgroup
    preload.py       a real template, once
    database.py      readings of the database      database_checks.py  what they mean
    pooler.py        whether a session is one session

An error is what keeps a worker from working, or from keeping a promise; a warning, what makes it work worse or what
could not be looked at. Nothing here changes anything: not in the database, in a cgroup or in what a dead worker left.
"""
