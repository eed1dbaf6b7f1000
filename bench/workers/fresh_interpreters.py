"""A fresh interpreter for each job: `python -m bench.workers.fresh_interpreters COUNT MODULE,MODULE`."""

import subprocess
import sys

if __name__ == "__main__":
    modules = sys.argv[2]
    for number in range(int(sys.argv[1])):
        code = f"import {modules}\nfrom bench.marks import mark\nmark({number})"
        subprocess.run([sys.executable, "-c", code], check=True)
