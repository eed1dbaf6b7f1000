"""Who is ours right now: children, with a job or without, what is still being born, and the template."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pools.identity import Marks
from pools.newborn import Newborn
from pools.ownership import OwnedChild


@dataclass(eq=False)
class Roster:
    """Changed on the loop only; its readings are copies, made in one step each, and safe from any thread.

    `templates` tells the pids of the template that serves now, and of any that survives SIGKILL.
    """

    marks: Marks
    templates: Callable[[], set[int]] = set
    children: dict[int, OwnedChild] = field(default_factory=dict)
    newborns: dict[int, Newborn] = field(default_factory=dict)
    births: set[int] = field(default_factory=set)

    def owned(self) -> set[int]:
        """Children of ours that lead trees of their own."""
        return {*tuple(self.children), *tuple(self.newborns), *self.templates()}

    def spared(self) -> set[int]:
        """Marks of processes that have a reason to live: running jobs, children being born, the template.

        Without a template and a birth nothing of the template's mark has one: it is what a preloaded module started.
        """
        return {*self.marks.in_use, *((self.marks.template,) if self.births or self.templates() else ())}

    def may_be_unborn(self, mark: int) -> bool:
        """Whether a process of this mark may be a child whose pid we are about to be told.

        Such a one must not be reaped even if it is dead: its pid could pass to a stranger in that very moment.
        """
        return bool(self.births) and (mark == self.marks.template or mark in self.births)
