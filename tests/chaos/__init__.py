"""Chaos: real workers are broken in every way at random, then a pure checker proves what must have held all along.

    plan.py      what is done and when: a pure function of the seed
    stage.py     a PostgreSQL that can be restarted, workers behind proxies of their own, and what watches them
    processes.py which processes of jobs were seen alive, and how long
    acts.py      does one step of the plan
    app.py       the kinds that run meanwhile; each attempt keeps a diary through a connection of its own
    history.sql  the diary, and a journal of every change of a job, a kind and a lease, kept by triggers
    history.py   diary, journal and tables as plain values
    checker.py   DESIGN's invariants 1 to 9 over those values; each violation is a sentence (checks_of_*.py)
    report.py    the figures, and what is printed

`scripts/chaos` runs it; see `__main__.py`.
"""
