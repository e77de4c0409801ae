"""Videos to a feature folder, resumable by running again."""

from collections.abc import Callable, Iterator
from pathlib import Path

from extractors.flow import FlowWorkers
from extractors.stages import closed_after
from extractors.twostream import TwoStream
from pipelines.extract_video import Outcome, Progress, attempt
from pipelines.store import FeatureFolder, append_jsonl, read_jsonl, sweep, write_jsonl

Engine = Callable[[dict[str, Path]], Iterator[Outcome]]
"""Extracts the videos {id: source} it is given, in any order and anywhere, with an Outcome of each as it ends.

Closing the iterator ends everything it started; what was finished is kept.
"""


def extract(
    videos: dict[str, Path],
    folder: FeatureFolder,
    twostream: TwoStream,
    workers: FlowWorkers | None,
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
                    failure = {"id": outcome.id, "source": str(outcome.source), "reason": outcome.reason}
                    failures[outcome.id] = failure
                    append_jsonl(folder.path / "failed.jsonl", failure)  # a kill must not lose it
                yield outcome
    finally:
        records = (folder.read_record(video_id) for video_id in folder.ids())
        write_jsonl(folder.path / "videos.jsonl", [record for record in records if record])
        if failures or (folder.path / "failed.jsonl").exists():
            write_jsonl(folder.path / "failed.jsonl", list(failures.values()))
