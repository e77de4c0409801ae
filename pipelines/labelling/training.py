"""Training from the page: `lstr learn --json` as a subprocess, its progress, and the models that it has made."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any

from lstr.errors import LstrError, RequestError
from lstr.files.content import write_json
from lstr.metrics.actions import sentence
from lstr.pipelines.child_process import command_of, package_environment
from lstr.pipelines.labelling.document import to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import NOTHING, State
from lstr.pipelines.model_files.model_file import open_model

PRIORITY = 5  # niceness of training: the person who labels comes first
# The first signal lets `lstr learn` keep finished work, a second one ends it at once.
TERMINATIONS, PATIENCE_S = 3, 4.0  # requests to end and the wait after each, before the process is killed
VIDEOS_SKIPPED = 3  # exit code of `lstr learn` if videos were skipped
IDLE: dict[str, Any] = {"progress": None, "warnings": [], "error": "", "hint": ""}
N_REPORTS = 5  # models whose working folder, some hundred MB, is kept for its report


class Training(AbstractContextManager["Training"]):
    """Trains models on the labels of a project, one at a time; use it as a context manager, which ends a training.

    Model N and its labels are in labels.models/N next to the project's file. A cancelled training resumes when it is
    started again, because `lstr learn` continues with what is in its working folder.

    Args:
        project: The labels.
        videos: The videos, as on the command line.
        on_trained: Called with each finished model file, from a thread.
    """

    def __init__(
        self, project: Project, videos: Sequence[str], on_trained: Callable[[Path], object] = lambda model: None
    ):
        self.project, self.videos, self.on_trained = project, videos, on_trained
        self.folder = project.path.with_suffix(".models")
        self._lock = threading.RLock()
        self._process: subprocess.Popen[str] | None = None
        self._thread: threading.Thread | None = None
        self._is_cancelled = False
        self._shown: dict[str, Any] = {**IDLE}  # what a page shows of the latest training
        self._models = self._read_models()

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def begin(self, seconds: float | None = None) -> None:
        """Train a model on the labels as they are now, within `seconds`.

        Raises RequestError if one is being trained or nothing is labelled, OutputError.
        """
        with self._lock:
            if self._process:
                raise RequestError("A model is already being trained.", "wait until it is trained, or cancel it.")
            revision, state = self.project.snapshot()
            number = 1 + max(self._numbers(), default=0)
            labels, model = self.folder / str(number) / "labels.json", self.model(number)
            # a copy, because a person continues to label while the model is trained
            write_json(labels, to_document(usable(state), self.project.durations, {"revision": revision}))
            self._is_cancelled = False
            try:
                self._process = start(self.command(labels, model, seconds))
            except OSError as error:
                raise LstrError(f"No process could be started ({error.strerror}).", "close other programs.") from error
            starting = {"step": 0, "steps": 0, "name": "starting", "share": 0.0, "seconds_left": None}
            self._shown = {**IDLE, "progress": {"number": number, **starting}}
            self._thread = threading.Thread(target=self._follow, args=(self._process, number), daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Cancel the training, and wait until its process has ended; what is finished is kept."""
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
        limit = [] if seconds is None else ["--time", f"{seconds:g}s"]
        return ["lstr", "learn", *self.videos, str(labels), "-o", str(model), *limit]

    def describe(self) -> dict[str, Any]:
        """Return what a page shows: `progress`, `warnings`, `error`, `hint`, `models` (latest first) and `command`."""
        path = self.project.path
        command = shlex.join(self.command(path, path.with_suffix(".lstr")))
        with self._lock:
            return {**self._shown, "models": self._models, "command": command}

    def _follow(self, process: "subprocess.Popen[str]", number: int) -> None:
        assert process.stderr
        for line in map(str.strip, process.stderr):
            word, _, text = line.partition(": ")
            with self._lock, suppress(ValueError):  # a library may write to it as well
                shown = self._shown = {**self._shown}  # a page may be reading the earlier one
                if word in ("error", "hint"):
                    shown[word] = text
                elif line.startswith("{"):
                    event = json.loads(line)
                    if "warning" in event:
                        shown["warnings"] = [*shown["warnings"], event["warning"]]
                    if "step" in event:
                        shown["progress"] = {**shown["progress"], **event}
        code = process.wait()
        with self._lock:
            self._process = None
            self._shown = shown = {**self._shown, "progress": None}
            is_trained = code in (0, VIDEOS_SKIPPED)
            if is_trained or self._is_cancelled:
                shown["error"] = shown["hint"] = ""
            elif not shown["error"]:
                how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
                shown["error"] = f"The training process ended unexpectedly ({how})."
                shown["hint"] = "close other programs if memory is short, and train again: what is finished is kept."
            if is_trained:
                for old in sorted(self._numbers())[:-N_REPORTS]:
                    shutil.rmtree(self.model(old).with_suffix(".learn"), ignore_errors=True)
                self._models = self._read_models()
                self.on_trained(self.model(number))  # before a page sees the model, which then asks for proposals

    def _numbers(self) -> list[int]:
        numbers = [int(path.name) for path in self.folder.glob("*") if re.fullmatch("[1-9][0-9]*", path.name)]
        return [number for number in numbers if self.model(number).exists()]

    def _read_models(self) -> list[dict[str, Any]]:
        """Read the finished models in the folder with the results that they state, latest first."""
        found = []
        for number in sorted(self._numbers(), reverse=True):
            with suppress(Exception):  # a damaged file, or one of a later version
                about = open_model(self.model(number)).about
                split, mAP = about["split"], about["metrics"]["lstr"]["mAP"]
                score = "unknown" if mAP is None else f"{mAP:.2f}"
                result = [sentence(about["metrics"]["events"]), f"{split[0].upper()}{split[1:]}; per-frame mAP {score}"]
                report = (self.report(number) / "report.html").is_file()
                found.append({"number": number, "path": str(self.model(number)), "result": result, "report": report})
        return found


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


def usable(state: State) -> State:
    """Return the values without videos that have no closed label and are not complete.

    Raises RequestError if no action is labelled.
    """
    ended = {video for video, held in state.labels.items() if any(label.end is not None for label in held.values())}
    actions = (one.action for held in state.labels.values() for one in held.values() if one.end is not None)
    if all(action == NOTHING for action in actions):
        raise RequestError("Nothing is labelled yet.", "label an action in a few videos, then train.")
    videos = ended | {video for video, about in state.abouts.items() if about.complete}
    labels = {video: held for video, held in state.labels.items() if video in videos}
    abouts = {video: about for video, about in state.abouts.items() if video in videos}
    return State(labels, abouts=abouts, actions=state.actions, subjects=state.subjects)
