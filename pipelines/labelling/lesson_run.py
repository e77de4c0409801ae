"""A learning on its way: its process, followed by a thread, and what a page shows of it."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Any

from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError
from lstr.pipelines.child_process import end
from lstr.pipelines.labelling.lesson_process import Event, LessonProcess, Measured, Planned, Task, Told
from lstr.pipelines.learning.plan import Doing
from lstr.pipelines.learning.rest import Rest

MOST_WARNINGS = 20


@dataclass(frozen=True)
class Ending:
    """How it ended: what was measured, why it failed, or neither where it was stopped."""

    measured: Measured | None = None
    error: str = ""
    hint: str = ""


class LessonRun:
    """A learning that runs until it is done, fails, or is stopped, from any thread.

    changed: called without arguments after each event. ended: called once, with the ending, from the run's own thread.
    """

    def __init__(self, task: Task, changed: Callable[[], object], ended: Callable[[Ending], object]):
        self._changed, self._ended = changed, ended
        self._lock, self._is_stopped = threading.Lock(), False
        self._plan: Planned | None = None
        self._doing: Doing | None = None
        self._rest, self._left, self._told = Rest(), 0.0, ""
        self._warnings: list[str] = []
        self._process = LessonProcess(task)
        self._thread = threading.Thread(target=self._follow, name="learning", daemon=True)
        self._thread.start()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a person must know of the labels, and of what was left out."""
        with self._lock:
            return tuple(self._warnings)

    def describe(self) -> dict[str, Any]:
        """What a page shows: `steps` of the plan by name, the `number` of the one at hand with what is `done` of its
        `total`, seconds that are `left` in all, the last sentence `told`, and `warnings`."""
        with self._lock:
            steps = [step.name for step in self._plan.plan.steps] if self._plan else []
            left = self._plan.plan.seconds if self._plan else None
            at = {"number": 0, "done": 0, "total": 0, "left": left}
            if one := self._doing:
                at = {"number": one.number, "done": one.done, "total": one.total, "left": self._left}
            return {"steps": steps, **at, "told": self._told, "warnings": list(self._warnings)}

    def stop(self) -> None:
        """End it; what is finished of it stays. Waits for that, for seconds at most."""
        with self._lock:
            self._is_stopped = True
        end([self._process])
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _follow(self) -> None:
        try:
            ending = self._last()
        except (EOFError, OSError):
            ending = Ending(
                error=f"The process that learned has ended ({self._process.death()}).",
                hint="is memory short? close other programs, and go on: what is finished is kept.",
            )
        self._process.process.wait()
        self._process.connection.close()
        with self._lock:
            is_stopped = self._is_stopped and ending.measured is None
        self._ended(Ending() if is_stopped else ending)

    def _last(self) -> Ending:
        """Take what the process tells, up to its last word. Raises EOFError or OSError where it dies before."""
        while True:
            event = self._process.connection.recv()
            if isinstance(event, LstrError | ExtractorError):
                return Ending(error=str(event), hint=event.hint)
            if isinstance(event, Measured):
                return Ending(event)
            self._take(event)
            self._changed()

    def _take(self, event: Event) -> None:
        with self._lock:
            match event:
                case Planned():
                    self._plan = event
                case Doing():
                    self._doing, self._left = event, self._rest.after(event, monotonic())[1]
                case Told(text, is_warning):
                    if not is_warning:
                        self._told = text
                    elif text not in self._warnings and len(self._warnings) < MOST_WARNINGS:
                        self._warnings.append(text)
