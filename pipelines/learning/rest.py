"""How long a learning still takes, by its plan and by how fast it has been."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # it brings numpy, and a shell that completes something waits for this module
    from lstr.pipelines.learning.plan import Doing

MEASURED = 5.0  # seconds of a step, after which its own speed says more than the plan


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
        passed = now - begun
        is_known = passed > MEASURED and event.done > before
        of_step = passed / (event.done - before) * (event.total - event.done) if is_known else planned
        return of_step, later + of_step
