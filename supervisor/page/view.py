"""What a view of the page is."""

from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from supervisor.page.reading import Session

Params = Mapping[str, str]
Q = TypeVar("Q", bound=Hashable)


@dataclass(frozen=True, slots=True)
class View(Generic[Q]):
    """One thing to look at: what is asked for, how it is read, and the template that shows it.

    `ask` makes the question from the path and the query of an address, and raises `Refused`. What `read` returns is
    compared with what it returned before: two equal answers look the same.
    """

    path: str
    template: str
    ask: Callable[[Params], Q]
    read: Callable[[Session, Q], Awaitable[object]]

    @property
    def live_path(self) -> str:
        return self.path.rstrip("/") + "/live"
