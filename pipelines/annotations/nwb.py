"""Neurodata Without Borders: a file a video, with its bouts and ethogram as the extension ndx-ethogram has them.

What lasts is a row of EthogramBouts, what does not is a row of an EventsTable, and what is ambiguous lies outside the
intervals of observation. Who acts and how sure a detector is are further columns of both.
"""

import json
import math
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

from lstr.labels.label_set import AMBIGUOUS, Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.footage import footage_at
from lstr.pipelines.annotations.format import EVERYTHING, ConvertOptions, File, Format, Written, each_video
from lstr.pipelines.failures import described
from lstr.pipelines.files.atomic import write_bytes

BOUTS, EVENTS, ETHOGRAM, OBSERVED, VIDEO = (
    "behavior_bouts", "behavior_events", "ethogram", "observation_intervals", "behavior_video",
)  # fmt: skip
MODULE = "behavior"
LABELS = ("label", "behavior", "behaviour", "action")
"""Columns that may name what happens in tables of others"""
UNKNOWN_START = datetime(1970, 1, 1, tzinfo=UTC)
"""In the place of when the video was recorded, which labels do not say and NWB must have."""


class Nwb(Format):
    """A file of NWB for each video, by pynwb and ndx-ethogram where they are installed."""

    name, suffix = "nwb", ".nwb"
    holds = EVERYTHING
    detects = False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return read_nwb(file.path, video_id)

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> Written:
        parts = list(each_video(annotated, output, self.suffix))
        for path, part in parts:
            write_bytes(path, [to_nwb(part)])
        return Written([path for path, _ in parts])


def _packages() -> tuple[Any, Any]:
    """pynwb and ndx_ethogram. Raises AnnotationError where they are not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ndx_ethogram
            import pynwb
    except ImportError as error:
        raise AnnotationError(
            f"Files of NWB need pynwb and ndx-ethogram, which are not installed ({error}).",
            'pip install "lstr-video[nwb]", or choose another format.',
        ) from error
    return pynwb, ndx_ethogram


def to_nwb(annotated: AnnotationSet) -> bytes:
    """The file of one video. Raises AnnotationError where pynwb is not installed, and for a name with a zero in it."""
    pynwb, ndx = _packages()
    video_id, video = annotated.first
    for name in (video_id, *annotated.classes, *(text for a in video.segments for text in (a.label, a.subject))):
        if "\0" in name:
            raise AnnotationError(f"{name!r} is no name for NWB, whose texts end at a zero.", "give it another name.")
    known = [a for a in video.segments if a.label != AMBIGUOUS]
    has_scores = any(a.score is not None for a in known)
    content = pynwb.NWBFile(
        session_description=f"labels of the video {video_id}; when it was recorded is not known",
        identifier=video_id,
        session_start_time=UNKNOWN_START,
    )
    module = content.create_processing_module(MODULE, "what happens in the video")
    ethogram = _ethogram(ndx, annotated.classes, known)
    links: dict[str, Any] = {"ethogram": ethogram}
    if series := _series(pynwb, video):
        content.add_acquisition(series)
        links["source_video"] = series
    if len(known) < len(video.segments):
        links["observation_intervals"] = _observed(pynwb, video)
        module.add(links["observation_intervals"])
    module.add(ethogram)
    ours = {"lstr": {**video.known("duration", "subset"), "video": video_id}}
    bouts = ndx.EthogramBouts(
        name=BOUTS,
        description="one row per bout",
        labeling_method="automated" if has_scores else "manual",
        parameters=json.dumps(ours),
        **({"source_software": "lstr"} if has_scores else {}),
        **links,
    )
    lasting = [a for a in known if a.end > a.start]
    moments = [a for a in known if a.end == a.start]
    for a in lasting:
        bouts.add_row(start_time=a.start, stop_time=a.end, label=a.label)
    _add_columns(bouts, lasting, known)
    module.add(bouts)
    if moments:
        table = pynwb.event.EventsTable(name=EVENTS, description="behaviours that do not last")
        table.add_column("label", "what happens")
        for a in moments:
            table.add_row(timestamp=a.start, label=a.label)
        _add_columns(table, moments, known)
        content.add_events_table(table)
    return _written(pynwb, content)


def _ethogram(ndx: Any, classes: Sequence[str], segments: Sequence[Segment]) -> Any:
    table = ndx.Ethogram(name=ETHOGRAM, description="all behaviours that are labelled")
    table.add_column("behavior_type", "state or point")
    lasts: dict[str, bool] = {}
    for a in segments:
        lasts[a.label] = lasts.get(a.label, False) or a.end > a.start
    for label in classes:
        if label != AMBIGUOUS:
            kind = "state" if lasts.get(label, True) else "point"
            table.add_row(behavior=label, definition=label, behavior_type=kind)
    return table


def _add_columns(table: Any, rows: Sequence[Segment], known: Sequence[Segment]) -> None:
    """Who acts and how sure a detector is, where any label of the video says so."""
    if any(a.subject for a in known):
        table.add_column("subject", "who does it; empty where nobody says", data=[a.subject for a in rows])
    if any(a.score is not None for a in known):
        scores = [math.nan if a.score is None else float(a.score) for a in rows]
        table.add_column("score", "how sure the detector is", data=scores)


def _series(pynwb: Any, video: AnnotatedVideo) -> Any:
    """The video itself, which stays where it is; None where its file, its rate or its length is not known."""
    path = Path(video.media) if video.media else None
    footage = footage_at(path) if path and path.is_file() else None
    rate, seconds = (footage.rate, footage.seconds) if footage else (video.fps, video.duration)
    if not video.media or not rate or not seconds:
        return None
    return pynwb.image.ImageSeries(
        name=VIDEO,
        description="the video that is labelled",
        format="external",
        external_file=[video.media],
        starting_frame=[0],
        rate=float(rate),
        num_samples=max(1, round(seconds * rate)),
        unit="n.a.",
    )


def _observed(pynwb: Any, video: AnnotatedVideo) -> Any:
    """What lies between ambiguous segments."""
    table = pynwb.epoch.TimeIntervals(name=OBSERVED, description="where the labels say what happens")
    reached = 0.0
    unknown = [(a.start, a.end) for a in video.segments if a.label == AMBIGUOUS]
    end = max([video.end, *(end for _, end in unknown)])
    for start, stop in [*sorted(unknown), (end, end)]:
        if start > reached:
            table.add_row(start_time=reached, stop_time=start)
        reached = max(reached, stop)
    return table


def _written(pynwb: Any, content: Any) -> bytes:
    import h5py

    held = BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with h5py.File(held, "w") as file, pynwb.NWBHDF5IO(file=file, mode="w") as out:
            out.write(content)
    return held.getvalue()


def read_nwb(path: Path, name: str) -> AnnotationSet:
    """The bouts and events of a file, of the video `name` where it is not one of ours. Raises AnnotationError."""
    pynwb, ndx = _packages()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pynwb.NWBHDF5IO(str(path), "r", load_namespaces=True) as source:
                return _read(pynwb, ndx, source.read(), name)
    except AnnotationError:
        raise
    except Exception as error:  # hdmf raises errors of its own and whatever h5py has
        raise AnnotationError(
            f"This is no sound file of NWB ({described(error)}).", "write it again with the tool that made it."
        ) from error


def _read(pynwb: Any, ndx: Any, content: Any, name: str) -> AnnotationSet:
    objects = list(content.objects.values())
    tables = [one for one in objects if isinstance(one, ndx.EthogramBouts)]
    intervals = [one for one in objects if isinstance(one, pynwb.epoch.TimeIntervals) and one not in tables]
    events = [one for one in objects if isinstance(one, pynwb.event.EventsTable) and _column(one)]
    tables = tables or [one for one in intervals if _column(one)]
    if len(tables) > 1:
        named = ", ".join(repr(one.name) for one in tables)
        raise AnnotationError(
            f"It has {len(tables)} tables of bouts ({named}): several opinions on one video are no labels.",
            "write a file with one of them.",
        )
    if not tables and not events:
        raise AnnotationError(
            "It has no table of bouts: no EthogramBouts, nor intervals with a column `label`.",
            "add one with ndx-ethogram.",
        )
    segments = [segment for one in [*tables, *events] for segment in _segments(one)]
    ours, classes, media, rate = {}, [], None, None
    for bouts in tables:
        ours = _ours(bouts)
        ethogram = getattr(bouts, "ethogram", None)
        classes = [str(text) for text in ethogram["behavior"][:]] if ethogram is not None else []
        if (series := getattr(bouts, "source_video", None)) is not None and series.external_file is not None:
            media, rate = str(series.external_file[0]), series.rate
        if (observed := getattr(bouts, "observation_intervals", None)) is not None:
            segments += _unknown(observed, ours.get("duration"), segments)
    known = {"duration": ours.get("duration"), "subset": ours.get("subset")}
    video = AnnotatedVideo(tuple(segments), media=media, fps=rate, **known)
    return AnnotationSet({name: video}, tuple(classes), _notes([*tables, *events]))


def _column(table: Any) -> str | None:
    """The column that names what happens."""
    names = {str(column).casefold(): str(column) for column in table.colnames}
    return next((names[label] for label in LABELS if label in names), None)


def _segments(table: Any) -> list[Segment]:
    label = _column(table)
    frame = table.to_dataframe()
    starts = frame["timestamp"] if "timestamp" in frame else frame["start_time"]
    if "stop_time" in frame:
        ends = frame["stop_time"]
    elif "duration" in frame:
        ends = starts + frame["duration"].fillna(0.0)
    else:
        ends = starts
    count = len(frame)
    subjects = frame["subject"] if "subject" in frame else [""] * count
    scores = frame["score"] if "score" in frame else [math.nan] * count
    rows = zip(starts, ends, frame[label], scores, subjects, strict=True)
    return [
        Segment(float(start), float(end), str(what), None if math.isnan(score) else float(score), str(who))
        for start, end, what, score, who in rows
    ]


def _unknown(observed: Any, duration: float | None, segments: Sequence[Segment]) -> list[Segment]:
    """What lies outside the intervals of observation, up to the duration or the last end."""
    frame = observed.to_dataframe()
    spans = sorted(
        (float(start), float(stop)) for start, stop in zip(frame["start_time"], frame["stop_time"], strict=True)
    )
    end = duration if duration is not None else max([0.0, *(a.end for a in segments), *(stop for _, stop in spans)])
    reached, found = 0.0, []
    for start, stop in [*spans, (end, end)]:
        if start > reached:
            found.append(Segment(reached, start, AMBIGUOUS))
        reached = max(reached, stop)
    return found


def _ours(bouts: Any) -> dict[str, Any]:
    """What `to_nwb` has written beside the bouts; nothing in a file of others."""
    try:
        found = json.loads(getattr(bouts, "parameters", None) or "{}").get("lstr", {})
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _notes(tables: Sequence[Any]) -> tuple[Note, ...]:
    """What of a file is not read."""
    read = {"start_time", "stop_time", "timestamp", "duration", "subject", "score"}
    lost = sorted({str(n) for one in tables for n in one.colnames if str(n) not in read | {_column(one)}})
    notes = [Note("columns", f"columns of bouts are not kept: {', '.join(map(repr, lost))}")] if lost else []
    return tuple(notes)
