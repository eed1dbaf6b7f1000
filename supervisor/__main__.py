"""`python -m supervisor` is `oomph worker`, with the same options."""

import sys

from supervisor.commands import main

main(["worker", *sys.argv[1:]])
