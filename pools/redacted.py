"""What a job wrote and what its pool says of it, without the secrets of the job."""

from dataclasses import replace

from jobs.outcome import AttemptReport, Died, Failed, JobError, Outcome, Returned, Succeeded
from jobs.redaction import Redactor

MAX_UNFINISHED_BYTES = 4 << 10  # of a line that waits for its end, beyond the longest secret


class RedactedStream:
    """Output as it arrives, in whole lines: a secret may come in pieces, and so may what tells an input."""

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._unfinished = b""
        self._most = MAX_UNFINISHED_BYTES + 4 * redactor.longest  # a character has 4 bytes at most

    def feed(self, data: bytes) -> bytes:
        """What can be told by now."""
        self._unfinished += data
        end = self._unfinished.rfind(b"\n") + 1
        if len(self._unfinished) - end <= self._most:
            told, self._unfinished = self._unfinished[:end], self._unfinished[end:]
            return self._redacted(told)
        # A line without an end: all but what may be the beginning of a secret.
        text = self._redacted(self._unfinished)
        end = len(text) - 4 * self._redactor.longest
        self._unfinished = text[end:]
        return text[:end]

    def rest(self) -> bytes:
        """What is left at the end."""
        told, self._unfinished = self._unfinished, b""
        return self._redacted(told)

    def _redacted(self, data: bytes) -> bytes:
        return self._redactor.text(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")


def redacted(report: AttemptReport, redactor: Redactor) -> AttemptReport:
    """The report as it may be stored and logged.

    What the job itself has written comes here without them already, because it was cut to length; this is for the rest.
    """
    return replace(
        report,
        outcome=_outcome(report.outcome, redactor),
        evidence=redactor.value(dict(report.evidence)),
        process=replace(report.process, output_tail=redactor.text(report.process.output_tail)),
    )


def _outcome(outcome: Outcome, redactor: Redactor) -> Outcome:
    match outcome:
        case Failed(error) | Died(_, error):
            told = JobError(*map(redactor.text, (error.type, error.message, error.frames)))
            return replace(outcome, error=told)
        case Succeeded(result) if result is not None:
            return replace(outcome, result=redactor.json(result))
        case Returned(_, why):
            return replace(outcome, why=redactor.text(why))
        case _:
            return outcome
