"""How long a learning still takes, by its plan and by how fast it has been."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings numpy, and a shell that completes something waits for this module
    from lstr.pipelines.learning.plan import Doing

TRUST = 0.05
"""The share of a step after which its own speed says as much as the plan: the first of it waits for networks"""


class Rest:
    """How long the step at hand still takes, by how fast it has been, and with it all that is left."""

    def __init__(self) -> None:
        self._begun: tuple[str, float, int] = ("", 0.0, 0)
        """Which step, when it was first heard of, and how much of it was done then"""

    def after(self, event: "Doing", now: float) -> tuple[float, float]:
        """Seconds that the step and all steps still take, at the moment `now`; those of all are never fewer."""
        if self._begun[0] != event.step.key:
            self._begun = (event.step.key, now, event.done)
        _, begun, before = self._begun
        planned = event.step.seconds * (1 - event.done / max(1, event.total))
        later = max(0.0, event.left - planned)
        of_step = planned
        if event.done > before:
            seconds = now - begun + TRUST * event.step.seconds
            of_step = seconds / (event.done - before + TRUST * event.total) * (event.total - event.done)
        return of_step, later + of_step
