"""Who does what: the labels of each subject, where label files say who acts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels
from lstr.labels.segment import Segment
from lstr.metrics.actions import Spans, labelled_spans
from lstr.metrics.budget import of_states, transitions

NOBODY = "(not said)"
"""In tables, in the place of a subject that labels do not name"""


@dataclass(frozen=True)
class Group:
    """What is told in one row: an action, or an action of one subject, with its spans in each video."""

    leading: Mapping[str, str]
    spans: Mapping[str, Spans]


def subjects_in(labels: Labels) -> list[str]:
    """The subjects by name; "" is among them where some labels name none, and nothing is where none does."""
    segments = (segment for video in labels.videos.values() for segment in video.segments)
    found = {segment.subject for segment in segments if segment.label not in (BACKGROUND, AMBIGUOUS)}
    return sorted(found) if found - {""} else []


def of_subject(segments: Sequence[Segment], subject: str) -> list[Segment]:
    """What one subject does."""
    return [segment for segment in segments if segment.subject == subject]


def groups_of(labels: Labels, actions: Sequence[str], lengths: Mapping[str, float]) -> list[Group]:
    """A group for each action, of all subjects together, cut at the videos' ends (s)."""
    videos = {name: labels.videos[name].segments for name in lengths}
    return [Group({"action": action}, _spans(videos, action, lengths)) for action in actions]


def groups_by_subject(
    labels: Labels, actions: Sequence[str], subjects: Sequence[str], lengths: Mapping[str, float]
) -> list[Group]:
    """A group for each action of each subject that does it at all."""
    groups = []
    for subject in subjects:
        videos = {name: of_subject(labels.videos[name].segments, subject) for name in lengths}
        for action in actions:
            spans = _spans(videos, action, lengths)
            if any(map(len, spans.values())):
                groups.append(Group({"action": action, "subject": subject}, spans))
    return groups


def transitions_of(
    videos: Sequence[Sequence[Segment]],
    actions: Sequence[str],
    subjects: Sequence[str],
    gaps: Sequence[Spans],
    pauses: bool = False,
) -> Any:
    """Counts (A, A) of what follows what, within each subject and never across two; (A + 1, A + 1) with `pauses`.

    gaps: where nobody watched each video, as of `lstr.metrics.budget.unobserved`.
    """
    return sum(
        transitions([of_subject(segments, subject) for segments in videos], actions, pauses, gaps=gaps)
        for subject in subjects or [""]
    )


def transitions_by_subject(
    videos: Sequence[Sequence[Segment]], actions: Sequence[str], subjects: Sequence[str], gaps: Sequence[Spans]
) -> dict[str, Any]:
    """What follows what of each subject, in JSON's types; gaps as in `transitions_of`."""
    return {subject: of_states(actions, transitions_of(videos, actions, [subject], gaps)) for subject in subjects}


def followers(told: Mapping[str, Mapping[str, Any]]) -> Iterator[list[Any]]:
    """Rows of `transitions_by_subject` that are not empty: subject, action, the next one, how often, as a share."""
    for subject, of_one in told.items():
        for state, counts, shares in zip(of_one["states"], of_one["counts"], of_one["probabilities"], strict=True):
            for after, count, share in zip(of_one["states"], counts, shares, strict=True):
                if count:
                    yield [subject or NOBODY, state, after, count, share]


def named(action: str, subject: str) -> str:
    """An action and who does it, as a row of an ethogram is called."""
    return f"{action} · {subject}" if subject else action


def rows_of(groups: Sequence[Group], colours: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The rows of an ethogram in the order of their actions, and the colour of each, which is its action's."""
    order = {action: at for at, action in enumerate(colours)}
    ordered = sorted(groups, key=lambda group: (order[group.leading["action"]], group.leading["subject"]))
    names = {named(group.leading["action"], group.leading["subject"]): group.leading["action"] for group in ordered}
    return list(names), {name: colours[action] for name, action in names.items()}


def with_names(segments: Sequence[Segment]) -> list[Segment]:
    """Segments called as the rows of an ethogram are."""
    return [replace(segment, label=named(segment.label, segment.subject)) for segment in segments]


def _spans(videos: Mapping[str, Sequence[Segment]], action: str, lengths: Mapping[str, float]) -> dict[str, Spans]:
    return {name: labelled_spans(segments, action, lengths[name]) for name, segments in videos.items()}
