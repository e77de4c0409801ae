"""Videos to a feature folder, resumable by running again."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

from extractors.errors import VideoError
from extractors.flow import FlowWorkers
from extractors.stages import closed_after
from extractors.twostream import TwoStream
from extractors.video import probe
from pipelines.extract_video import Outcome, Progress, attempt
from pipelines.store import FeatureFolder, open_features, sweep, write_jsonl

Engine = Callable[[dict[str, Path]], Iterator[Outcome]]
"""Extracts the videos {id: source} it is given, in any order and anywhere, with an Outcome of each as it ends.

Closing the iterator ends everything it started; what was finished is kept.
"""


def plan(videos: dict[str, Path], output: Path) -> list[tuple[str, str, int, str]]:
    """(id, seconds, chunks, state) of each video, reading headers only; the state is `done`, `to do` or an error."""
    folder = open_features(output) if (output / "recipe.json").exists() else None
    rows = []
    for video_id, path in videos.items():
        try:
            video = probe(path)
        except VideoError as error:
            rows.append((video_id, "", 0, str(error)))
        else:
            done = folder is not None and folder.is_done(video_id, path)
            rows.append((video_id, f"{video.duration:.1f}", video.n_chunks, "done" if done else "to do"))
    return rows


def extract(
    videos: dict[str, Path],
    folder: FeatureFolder,
    twostream: TwoStream,
    workers: FlowWorkers,
    progress: Progress,
    allow_damaged: bool = False,
) -> Iterator[Outcome]:
    """Extract each video that is not done, one after the other in this process. As `run`."""

    def one_by_one(to_do: dict[str, Path]) -> Iterator[Outcome]:
        for video_id, source in to_do.items():
            yield attempt(video_id, source, folder, twostream, workers, progress, allow_damaged)

    return run(videos, folder, one_by_one)


def run(videos: dict[str, Path], folder: FeatureFolder, engine: Engine) -> Iterator[Outcome]:
    """Have an engine extract each video that is not done; one bad video does not stop the rest.

    Yields an Outcome a video. `videos.jsonl` and `failed.jsonl` are compiled at the end, also after an interruption.
    """
    sweep(folder.path)
    failures = {failure["id"]: failure for failure in read_jsonl(folder.path / "failed.jsonl")}
    to_do = {}
    try:
        for video_id, source in videos.items():
            if folder.is_done(video_id, source):
                failures.pop(video_id, None)
                yield Outcome(video_id, source, "kept", chunks=len(folder.load(video_id)[0]))
            else:
                to_do[video_id] = source
        with closed_after(engine(to_do)) as outcomes:
            for outcome in outcomes:
                failures.pop(outcome.id, None)
                if outcome.state == "failed":
                    failures[outcome.id] = {
                        "id": outcome.id,
                        "source": str(outcome.source),
                        "reason": outcome.reason,
                    }
                yield outcome
    finally:
        records = (folder.read_record(video_id) for video_id in folder.ids())
        write_jsonl(folder.path / "videos.jsonl", [record for record in records if record])
        if failures or (folder.path / "failed.jsonl").exists():
            write_jsonl(folder.path / "failed.jsonl", list(failures.values()))


def read_jsonl(path: Path) -> list[dict]:
    """The objects of a JSONL file; empty when it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
