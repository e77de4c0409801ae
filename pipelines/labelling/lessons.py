"""The learnings of a labels project: one at a time, each on labels of its own, and the last ones kept and measured."""

import filecmp
import shutil
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lstr.extractors.home import default_model
from lstr.pipelines.labelling.lesson import (
    FAILED,
    LEARNING,
    LEARNT,
    STOPPED,
    Lesson,
    LessonFiles,
    LessonOptions,
    command_of,
    files_of,
    learnable,
    n_labels,
    write_snapshot,
)
from lstr.pipelines.labelling.lesson_process import Task
from lstr.pipelines.labelling.lesson_run import Ending, LessonRun
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import LONGEST_NAME, RefusedError

SHORTEST, LONGEST = 60.0, 7 * 86400.0
"""Seconds that a learning may be told to take"""
Listener = Callable[[dict[str, Any]], object]


class Lessons:
    """The learnings in the folder beside a project's file, labels.models; use it as a context manager, which ends one.

    on_learnt: called with the model file of each learning that is done, from a thread of its own; set it at any time.
    """

    def __init__(
        self, project: Project, options: LessonOptions, on_learnt: Callable[[Path], object] | None = None
    ) -> None:
        self.project, self.options, self.on_learnt = project, options, on_learnt
        self.folder = project.path.with_suffix(".models")
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._version = 0
        self._run: LessonRun | None = None
        self._lessons = self._read()

    def __enter__(self) -> "Lessons":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def begin(self, seconds: float | None = None) -> Lesson:
        """Learn from the labels as they are now. What was not finished before is removed.

        Raises RefusedError where one learns already, nothing is labelled, or the time is none; OutputError.
        """
        if seconds is not None and not SHORTEST <= seconds <= LONGEST:
            raise RefusedError("That is no time to learn in.", "give a minute at least, and a week at most.")
        with self._lock:
            self._check_idle()
            revision, state = self.project.snapshot()
            state = learnable(state)
            for number in [number for number, one in self._lessons.items() if one.state != LEARNT]:
                self._remove(number)
            number = max(self._lessons, default=0) + 1
            lesson = Lesson(number, time.time(), len(state.videos()), n_labels(state), seconds)
            write_snapshot(self.files(number), state, self.project.durations, revision)
            return self._start(lesson)

    def go_on(self, number: int) -> Lesson:
        """Go on with a learning that was stopped, or has failed. Raises RefusedError."""
        with self._lock:
            self._check_idle()
            lesson = self._lesson(number, STOPPED, FAILED)
            return self._start(replace(lesson, state=LEARNING, error="", hint="", warnings=()))

    def stop(self) -> None:
        """Stop the learning that runs, if one does; it can go on later."""
        with self._lock:
            run = self._run
        if run:
            run.stop()

    def remove(self, number: int) -> None:
        """Remove a learning that was stopped or has failed, and all its files. Raises RefusedError."""
        with self._lock:
            self._lesson(number, STOPPED, FAILED)
            self._remove(number)
            self._tell(anew=True)

    def call(self, number: int, name: str) -> None:
        """Give a learning a name, or none; what has one is kept. Raises RefusedError, OutputError."""
        with self._lock:
            lesson = self._lesson(number, LEARNT)
            if len(name) > LONGEST_NAME or not name.isprintable():
                raise RefusedError("That is no name.", f"take at most {LONGEST_NAME} letters.")
            self._keep(replace(lesson, name=name.strip()))
            self._tell(anew=True)

    def use(self, number: int) -> None:
        """Let `lstr detect` use a model where none is named. Raises RefusedError, OutputError."""
        from lstr.pipelines.detection.checkpoint import make_default

        with self._lock:
            self._lesson(number, LEARNT)
        make_default(self.files(number).model)
        self._tell(anew=True)

    def files(self, number: int) -> LessonFiles:
        """Where a learning is."""
        return files_of(self.folder, number)

    def state(self) -> dict[str, Any]:
        """What changes from moment to moment: `number` and `run` of the one that learns, if one does, and a `version`
        that is another when `describe` says something else."""
        with self._lock:
            number = next((number for number, one in self._lessons.items() if one.state == LEARNING), None)
            return {"version": self._version, "number": number, "run": self._run and self._run.describe()}

    def describe(self) -> dict[str, Any]:
        """All learnings, the newest first, each with the `command` that makes the same, whether it has a `report`, and
        whether it is `used` by `lstr detect` where none is named; and `next`, the command for the labels of now."""
        with self._lock:
            version, lessons = self._version, sorted(self._lessons.values(), key=lambda one: -one.number)
        path = self.project.path
        return {
            "version": version,
            "kept": self.options.kept,
            "next": command_of(self.options, path, path.with_suffix(".lstr"), None),
            "lessons": [self._described(one) for one in lessons],
        }

    def listen(self, listener: Listener) -> dict[str, Any]:
        """The state; from then on the listener is called with each later one."""
        with self._lock:
            self._listeners.append(listener)
            return self.state()

    def leave(self, listener: Listener) -> None:
        """Call a listener no more."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def _described(self, lesson: Lesson) -> dict[str, Any]:
        files = self.files(lesson.number)
        model, used = files.model, default_model()
        is_used = bool(used and model.is_file() and filecmp.cmp(used, model, shallow=False))
        command = command_of(self.options, files.labels, model, lesson.seconds)
        more = {"model": str(model), "command": command, "used": is_used}
        return {**asdict(lesson), **more, "report": (files.report / "report.html").is_file()}

    def _read(self) -> dict[int, Lesson]:
        """The learnings in the folder; one that ran when its process was killed has been stopped."""
        numbers = sorted(int(path.name) for path in self.folder.glob("[0-9]*") if path.name.isdecimal())
        found = {number: self.files(number).read() for number in numbers}
        lessons = {number: one for number, one in found.items() if one and one.number == number}
        return {n: replace(one, state=STOPPED) if one.state == LEARNING else one for n, one in lessons.items()}

    def _check_idle(self) -> None:
        if self._run:
            raise RefusedError("A model is being learnt already.", "wait until it is done, or stop it.")

    def _lesson(self, number: int, *states: str) -> Lesson:
        lesson = self._lessons.get(number)
        if lesson is None or lesson.state not in states:
            raise RefusedError(f"There is no such model {number} any more.", "reload the page.")
        return lesson

    def _start(self, lesson: Lesson) -> Lesson:
        self._keep(lesson)
        files, learnt = self.files(lesson.number), [n for n, one in self._lessons.items() if one.state == LEARNT]
        before = max((number for number in learnt if number < lesson.number), default=None)
        names = tuple(f"model {number}" for number in (before or 0, lesson.number))
        settings = {**self.options.settings, "seconds": lesson.seconds}
        paths = {"videos": [*self.options.videos], "labels": [str(files.labels)], "output": str(files.model)}
        task = Task(files, {**paths, **settings}, self.files(before) if before else None, (names[0], names[1]))
        try:
            self._run = LessonRun(task, self._tell, lambda ending: self._end(lesson, ending))
        except OSError as error:
            self._end(
                lesson, Ending(error=f"No process could be started ({error.strerror}).", hint="close other programs.")
            )
        self._tell(anew=True)
        return lesson

    def _end(self, lesson: Lesson, ending: Ending) -> None:
        with self._lock:
            warnings = self._run.warnings if self._run else ()
            self._run = None
            lesson = replace(lesson, state=STOPPED, warnings=warnings)
            if found := ending.measured:
                lesson = replace(lesson, state=LEARNT, measured=found.figures, differences=found.differences)
            elif ending.error:
                lesson = replace(lesson, state=FAILED, error=ending.error, hint=ending.hint)
            with suppress(Exception):  # a full disk: the page shows it all the same
                self._keep(lesson)
            self._lessons[lesson.number] = lesson
            self._prune()
            if ending.measured and self.on_learnt:  # before a page hears of it, which then finds what that has begun
                self.on_learnt(self.files(lesson.number).model)
            self._tell(anew=True)

    def _keep(self, lesson: Lesson) -> None:
        self.files(lesson.number).write(lesson)
        self._lessons[lesson.number] = lesson

    def _remove(self, number: int) -> None:
        shutil.rmtree(self.files(number).folder, ignore_errors=True)
        del self._lessons[number]

    def _prune(self) -> None:
        """Remove what old models are made of; their files stay, and all of what a person has named."""
        learnt = sorted(number for number, one in self._lessons.items() if one.state == LEARNT)
        for number in learnt[: -self.options.kept]:
            if not self._lessons[number].name:
                shutil.rmtree(self.files(number).parts, ignore_errors=True)

    def _tell(self, anew: bool = False) -> None:
        with self._lock:
            self._version += anew
            state = self.state()
            for listener in list(self._listeners):
                listener(state)
