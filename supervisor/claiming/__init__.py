"""How a worker takes jobs: when it claims, what it asks for, and from where it looks.

claims.py       claims and looks, and starts what they took
pool_queue.py   the queue of one pool, as this worker knows it; of that, each pure:
heard.py        what notifications told       herd.py     whether to come for them, among many workers
reach.py        how far back to look          turns.py    whose turn it is among organisations
"""
