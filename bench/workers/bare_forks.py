"""Fork, mark, exit, wait, without any queue: `python -m bench.workers.bare_forks COUNT AT_ONCE MODULE,MODULE`."""

import gc
import importlib
import os
import sys

from bench.marks import mark

if __name__ == "__main__":
    count, at_once = int(sys.argv[1]), int(sys.argv[2])
    for name in filter(None, sys.argv[3].split(",")):
        importlib.import_module(name)
    gc.collect()
    gc.disable()
    gc.freeze()  # as Oomph's template does
    running = 0
    for number in range(count):
        if running == at_once:
            os.wait()
            running -= 1
        if os.fork() == 0:
            mark(number)
            os._exit(0)
        running += 1
    for _ in range(running):
        os.wait()
