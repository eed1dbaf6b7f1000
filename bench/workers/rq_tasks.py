"""What rq's work-horse runs."""

from bench.marks import mark


def noop(number: int) -> None:
    mark(number)
