"""Models trained from the page: `lstr learn` in a process, its progress, and the models that it has made."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lstr.errors import LstrError, RequestError
from lstr.files.content import write_json
from lstr.pipelines.child_process import command_of, package_environment
from lstr.pipelines.labelling.document import to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import NOTHING, State
from lstr.pipelines.model_files.model_file import open_model

SHORTEST_S, LONGEST_S = 60, 7 * 86400  # time limit that a page may ask for
PRIORITY = 5  # niceness of training: the person who labels comes first
TERMINATIONS, PATIENCE_S = 3, 4.0  # requests to end, and the wait after each, before the process is killed
SOME_FAILED = 3  # exit code of `lstr learn` where videos were skipped
N_KEPT = 5  # models whose working folder stays, which has their report
MAX_WARNINGS = 20
Listener = Callable[[dict[str, Any]], object]


@dataclass(frozen=True)
class Progress:
    """How far a training is, as `lstr learn --json` reports it."""

    number: int
    """The number of the model that is trained."""
    step: int = 0
    steps: int = 0
    name: str = "starting"
    share: float = 0.0
    """Part of the step that is done, from 0 to 1."""
    seconds_left: float | None = None


class Training:
    """Trains models on the labels of a project, one at a time; use it as a context manager, which ends a training.

    Model N and its labels are in labels.models/N beside the project's file. A training that was cancelled resumes when
    it is started again, because `lstr learn` continues with what is in its working folder.

    Args:
        project: The labels.
        videos: The videos, as on the command line.
        options: More words for `lstr learn`.
        on_trained: Called with each finished model file, from a thread.
    """

    def __init__(
        self,
        project: Project,
        videos: Sequence[str],
        options: Sequence[str] = (),
        on_trained: Callable[[Path], object] = lambda model: None,
    ):
        self.project, self.videos, self.options, self.on_trained = project, videos, options, on_trained
        self.folder = project.path.with_suffix(".models")
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._is_cancelled = False
        self._progress: Progress | None = None
        self._warnings: list[str] = []
        self._error = self._hint = ""
        self._models = self._read_models()

    def __enter__(self) -> "Training":
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def begin(self, seconds: float | None = None) -> None:
        """Train a model on the labels as they are now, within `seconds`.

        Raises RequestError where one is trained already, nothing is labelled or the time is out of range, OutputError.
        """
        if seconds is not None and not SHORTEST_S <= seconds <= LONGEST_S:
            raise RequestError("The time limit is out of range.", "give at least a minute, and at most a week.")
        with self._lock:
            if self._process:
                raise RequestError("A model is being trained already.", "wait until it is done, or cancel it.")
            revision, state = self.project.snapshot()
            state = usable_for_training(state)
            number = 1 + max(self._numbers(), default=0)
            labels, model = self.folder / str(number) / "labels.json", self.model(number)
            write_json(labels, to_document(state, self.project.durations, {"revision": revision}))
            self._warnings, self._error, self._hint, self._is_cancelled = [], "", "", False
            try:
                self._process = start(self.command(labels, model, seconds))
            except OSError as error:
                raise LstrError(f"No process could be started ({error.strerror}).", "close other programs.") from error
            self._progress = Progress(number)
            self._thread = threading.Thread(target=self._follow, args=(self._process,), name="training", daemon=True)
            self._thread.start()
            self._notify()

    def stop(self) -> None:
        """Cancel the training, and wait until its process has ended; what it has finished is kept."""
        with self._lock:
            process, thread, self._is_cancelled = self._process, self._thread, True
        if process and thread:
            for _ in range(TERMINATIONS):
                process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    process.wait(PATIENCE_S)
                    break
            process.kill()
            thread.join()

    def model(self, number: int) -> Path:
        """Return the path of a model file."""
        return self.folder / str(number) / f"model-{number}.lstr"

    def report(self, number: int) -> Path:
        """Return the folder of a model's report, which `lstr learn` writes into its working folder."""
        return self.model(number).with_suffix(".learn") / "report"

    def command(self, labels: Path, model: Path, seconds: float | None = None) -> list[str]:
        """Return the command that trains such a model."""
        limit = [] if seconds is None else ["--time", f"{seconds:g}s"]
        return ["lstr", "learn", *self.videos, str(labels), "-o", str(model), *limit, *self.options]

    def describe(self) -> dict[str, Any]:
        """Return what a page shows: `progress`, `warnings`, `error`, `hint`, `models` (latest first) and `command`."""
        path = self.project.path
        with self._lock:
            return {
                "progress": asdict(self._progress) if self._progress else None,
                "warnings": list(self._warnings),
                "error": self._error,
                "hint": self._hint,
                "models": self._models,
                "command": shlex.join(self.command(path, path.with_suffix(".lstr"))),
            }

    def listen(self, listener: Listener) -> dict[str, Any]:
        """Return the state; from then on the listener is called with each later one."""
        with self._lock:
            self._listeners.append(listener)
            return self.describe()

    def leave(self, listener: Listener) -> None:
        """Stop calling a listener."""
        with self._lock, suppress(ValueError):
            self._listeners.remove(listener)

    def _notify(self) -> None:
        with self._lock:
            state = self.describe()
            for listener in list(self._listeners):
                listener(state)

    def _follow(self, process: "subprocess.Popen[str]") -> None:
        """Read the progress of a training until its process ends."""
        assert process.stderr and self._progress
        number = self._progress.number
        for line in process.stderr:
            self._take(line.strip())
            self._notify()
        code = process.wait()
        with self._lock:
            self._process = self._progress = None
            is_trained = code in (0, SOME_FAILED)
            if is_trained or self._is_cancelled:
                self._error = self._hint = ""
            elif not self._error:
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                self._error = f"The training process ended unexpectedly ({how})."
                self._hint = "close other programs if memory is short, and train again: what is finished is kept."
            if is_trained:
                self._models = self._read_models()
                self._prune()
                self.on_trained(self.model(number))  # before a page reads of it, which then asks for proposals
            self._notify()

    def _take(self, line: str) -> None:
        """Take one line of what `lstr learn --json` writes to standard error."""
        with self._lock, suppress(ValueError):
            if line.startswith("error: "):
                self._error = line.removeprefix("error: ")
            elif line.startswith("hint: "):
                self._hint = line.removeprefix("hint: ")
            elif line.startswith("{"):
                event = json.loads(line)
                if "warning" in event and len(self._warnings) < MAX_WARNINGS:
                    self._warnings.append(event["warning"])
                elif "step" in event and self._progress:
                    self._progress = replace(self._progress, **event)

    def _numbers(self) -> list[int]:
        """Return the numbers of the model files in the folder."""
        numbers = [int(path.name) for path in self.folder.glob("*") if re.fullmatch("[1-9][0-9]*", path.name)]
        return [number for number in numbers if self.model(number).exists()]

    def _read_models(self) -> list[dict[str, Any]]:
        """Read the finished models in the folder, latest first."""
        found = []
        for number in sorted(self._numbers(), reverse=True):
            with suppress(Exception):  # a damaged file, or one of a later version
                result = result_of(open_model(self.model(number)).about)
                report = (self.report(number) / "report.html").is_file()
                found.append({"number": number, "path": str(self.model(number)), "result": result, "report": report})
        return found

    def _prune(self) -> None:
        """Remove the working folders of older models, which are large; the model files stay."""
        for one in self._models[N_KEPT:]:
            if not (self.folder / str(one["number"]) / "lesson.json").exists():  # earlier versions let people keep some
                shutil.rmtree(self.model(one["number"]).with_suffix(".learn"), ignore_errors=True)
                one["report"] = False


def start(command: Sequence[str]) -> "subprocess.Popen[str]":
    """Start an `lstr` command that writes its progress as JSON lines to standard error, and ends with this process.

    Raises OSError.
    """
    process = subprocess.Popen(
        command_of("lstr_cli.main", *command[1:], "--json"),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,  # the model file has the result
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
        env=package_environment(),
        process_group=0,  # Ctrl-C is for the server, which then ends it
    )
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, PRIORITY)
    return process


def result_of(about: Mapping[str, Any]) -> list[str]:
    """Return what a model file states about how good it is: actions caught and false alarms, then mAP."""
    from lstr.metrics.actions import sentence

    metrics, split = about["metrics"], about["split"]
    mAP = metrics["lstr"]["mAP"]
    return [
        sentence(metrics["events"]),
        f"{split[0].upper()}{split[1:]}; per-frame mAP {'unknown' if mAP is None else f'{mAP:.2f}'}",
    ]


def usable_for_training(state: State) -> State:
    """Return a project's values but for videos that have no label and are not complete.

    Raises RequestError where no action is labelled.
    """
    complete = {video for video, about in state.abouts.items() if about.complete}
    ended = {video: [one for one in held.values() if one.end is not None] for video, held in state.labels.items()}
    if not any(one.action != NOTHING for labels in ended.values() for one in labels):
        raise RequestError("Nothing is labelled yet.", "label an action in a few videos, then train.")
    videos = complete | {video for video, labels in ended.items() if labels}
    labels = {video: held for video, held in state.labels.items() if video in videos}
    abouts = {video: about for video, about in state.abouts.items() if video in videos}
    return State(labels, abouts=abouts, actions=dict(state.actions), subjects=dict(state.subjects))
