"""Where a job runs, and how it is judged.

    execution.py   what an attempt and a pool are   errors.py      an exception as it is stored
    loop.py        the pools agent and system       deadlines.py   theirs
    ingest.py      the pool ingest                  verdict.py     how a child ended, from evidence alone
    options.py     what of it can be set            threads.py     for what blocks
    tracing.py     where spans go

How a child of `ingest` comes to be:

    template.py    the process that only forks      spawner.py     keeps one alive
    template_hold.py   the hold on one              template_changes.py   what its owner wants to know
    forking.py     the fork                         fork_safety.py what a template must not have
    fresh.py       instead of a fork                huge_pages.py  what makes a fork cheap
    nursery.py     where the next child waits       newborn.py     that child
    startup.py     before the first                 rehearsal.py   the first, without a job
    frames.py      what all of them say to each other

The child itself, and what it may do:

    child.py       from the fork to its last frame  progress.py    what it tells meanwhile
    enclosure.py   its limits, one by one           stacks.py      where it stands
    landlock.py    seccomp.py   capabilities.py     user.py        the kernel's means for that
    scratch.py     its folder; see folders.py       shm.py         its shared memory
    cgroups.py     its leaf, where there are any    symptoms.py    of exhausted memory

The supervisor's side of it:

    life.py        gate, end, clean-up              ownership.py   pidfd, socket, output of one child
    watch.py       what all of them use             household.py   what they share
    budget.py      who may start                    roster.py      who is ours
    output.py      what a job prints                intake.py      reads pipes
    evidence.py    what is known after an end       redacted.py    without its secrets
    leftovers.py   ends all of a tree               identity.py    whose a process or folder is
    memory.py      oom.py   open_files.py           procfs.py      process.py   what the kernel tells, and is told
"""
