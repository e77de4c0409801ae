"""Videos to a feature folder, resumable by running again."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from extractors.errors import VideoError
from extractors.flow import FlowWorkers
from extractors.stages import closed_after
from extractors.twostream import TwoStream
from extractors.video import probe
from pipelines.extract_video import Outcome, Progress, attempt
from pipelines.remote import Source
from pipelines.remote_features import Features, open_folder
from pipelines.store import FeatureFolder

REQUESTS = 32  # videos whose features elsewhere are looked at together
Engine = Callable[[dict[str, Source]], Iterator[Outcome]]
"""Extracts the videos {id: source} it is given, in any order and anywhere, with an Outcome of each as it ends.

Closing the iterator ends everything it started; what was finished is kept.
"""


def plan(videos: dict[str, Source], output: Source) -> list[tuple[str, str, int, str]]:
    """(id, seconds, chunks, state) of each video, reading headers only; the state is `done`, `to do` or an error."""
    folder = open_folder(output)
    rows = []
    for video_id, path in videos.items():
        try:
            video = probe(path) if isinstance(path, Path) else None  # elsewhere, all of it would have to be brought
        except VideoError as error:
            rows.append((video_id, "", 0, str(error)))
        else:
            done = folder is not None and folder.is_done(video_id, path)
            length = (f"{video.duration:.1f}", video.n_chunks) if video else ("", 0)
            rows.append((video_id, *length, "done" if done else "to do"))
    return rows


def extract(
    videos: dict[str, Source],
    folder: Features,
    twostream: TwoStream,
    workers: FlowWorkers,
    progress: Progress,
    allow_damaged: bool = False,
) -> Iterator[Outcome]:
    """Extract each video that is not done, one after the other in this process. As `run`."""

    def one_by_one(to_do: dict[str, Source]) -> Iterator[Outcome]:
        for video_id, source in to_do.items():
            yield attempt(video_id, source, folder, twostream, workers, progress, allow_damaged)

    return run(videos, folder, one_by_one)


def run(videos: dict[str, Source], folder: Features, engine: Engine) -> Iterator[Outcome]:
    """Have an engine extract each video that is not done; one bad video does not stop the rest.

    Yields an Outcome a video. `videos.jsonl` and `failed.jsonl` are compiled at the end, also after an interruption.
    """
    folder.sweep()
    failures = {failure["id"]: failure for failure in folder.failures()}
    to_do = {}
    try:
        for video_id, chunks in finished(videos, folder):
            if chunks:
                failures.pop(video_id, None)
                yield Outcome(video_id, videos[video_id], "kept", chunks)
            else:
                to_do[video_id] = videos[video_id]
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
        folder.compile(list(failures.values()))


def finished(videos: dict[str, Source], folder: Features) -> Iterator[tuple[str, int]]:
    """(id, chunks) of each video in order; 0 chunks where it is not done. A network is asked for many at once."""

    def look(video_id: str) -> int:
        done = folder.is_done(video_id, videos[video_id])
        return folder.read_record(video_id)["chunks"] if done else 0

    if isinstance(folder, FeatureFolder) and all(isinstance(source, Path) for source in videos.values()):
        yield from ((video_id, look(video_id)) for video_id in videos)
        return
    with ThreadPoolExecutor(REQUESTS, "finished") as pool:
        try:
            yield from zip(videos, pool.map(look, videos), strict=True)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
