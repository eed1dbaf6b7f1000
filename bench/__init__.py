"""The bench: what Oomph reaches on this machine, and its peers beside it, in one run.

    __main__     arguments; runs the scenarios one after the other; table, pictures, exit status
    scenarios/   one file a scenario: what is measured and what must be reached
    drain, pickup, births, enqueueing, idle     how a thing is measured, the same way for every system
    systems/     one file a system (Oomph, a peer, or the bare limit): its tables, its jobs, its worker
    workers/     what runs inside the worker processes
    ground       the servers, fresh databases, and every process that the bench has started

One PostgreSQL with the same settings serves all; each measurement has a fresh database. The runs of the systems take
turns, so that the noise of the machine meets all of them. A job that was not done, or was done twice, is an error and
never a figure. Everything that the bench starts it ends by its pid, also after Ctrl-C.
"""
