"""What notifications have told one pool since its last claim began."""

MAX_NAMED = 4  # jobs; of more, a claim that looks at the queue costs less


class Heard:
    """The kinds of which jobs came, and the jobs themselves where each was named."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self._ids: list[int] | None = []

    def add(self, kind: str, job_id: int | None) -> None:
        """A job of this kind came: that one, or one that is not named."""
        self.kinds.add(kind)
        if job_id is None or self._ids is None or len(self._ids) == MAX_NAMED:
            self._ids = None
        else:
            self._ids.append(job_id)

    @property
    def ids(self) -> list[int]:
        """All that came, if they are few and named; else none."""
        return self._ids or []
