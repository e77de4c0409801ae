"""Time budgets: how often and how long each action happens, by video, action and subject."""

from lstr.errors import LabelsError
from lstr.labels.balance import actions_of
from lstr.labels.label_set import Labels
from lstr.pipelines.pages.table import Cell, Column, Table

ALL = "all"
COLUMNS = (
    Column("video", is_text=True),
    Column("action", is_text=True),
    Column("subject", is_text=True),
    Column("count"),
    Column("total_s", 2),
    Column("mean_s", 2),
)


def time_budget(labels: Labels) -> Table:
    """Return the count, the total and the mean seconds of each action.

    The first rows are of all videos together, the others of each video. Where labels name subjects, each action has a
    row for all subjects together and one for each subject; the row of labels without a subject has an empty cell.

    Raises LabelsError where no action is labelled.
    """
    actions = actions_of(labels)
    if not actions:
        raise LabelsError("No action is labelled.", "give a file with a label, see `lstr labels check FILE`.")
    # by video, action and subject, None for all of them
    seconds: dict[tuple[str | None, str, str | None], list[float]] = {(None, action, None): [] for action in actions}
    segments = [(name, s) for name, video in labels.videos.items() for s in video.segments if s.label in actions]
    has_subjects = any(segment.subject for _, segment in segments)
    for name, segment in segments:
        subjects = (None, segment.subject) if has_subjects else (None,)
        for video in (None, name):
            for subject in subjects:
                seconds.setdefault((video, segment.label, subject), []).append(segment.end - segment.start)
    videos = {name: place for place, name in enumerate((None, *labels.videos))}
    rows: list[list[Cell]] = []
    for key in sorted(seconds, key=lambda k: (videos[k[0]], actions.index(k[1]), k[2] is not None, k[2] or "")):
        lengths, (video, action, subject) = seconds[key], key
        total = sum(lengths, 0.0)
        names = [ALL if video is None else video, action, ALL if subject is None else subject]
        rows.append([*names, len(lengths), total, total / len(lengths) if lengths else None])
    return Table("time budget", COLUMNS, rows)
