"""All values of a labels project at one moment, and which changes it can take."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from lstr.errors import ConflictError, RequestError
from lstr.pipelines.labelling.values import (
    NOTHING,
    ONE_A_VIDEO,
    About,
    Action,
    Change,
    Label,
    Proposal,
    Search,
    Subject,
    Value,
)

Place = tuple[str, str, str]


@dataclass
class State:
    """Values by place, as `Change.place` has it; videos and actions are found through `labels_of` and `actions`."""

    labels: dict[str, dict[str, Label]] = field(default_factory=dict)
    """By video and id."""
    proposals: dict[str, dict[str, Proposal]] = field(default_factory=dict)
    """By video and id."""
    searches: dict[str, Search] = field(default_factory=dict)
    abouts: dict[str, About] = field(default_factory=dict)
    actions: dict[str, Action] = field(default_factory=dict)
    subjects: dict[str, Subject] = field(default_factory=dict)

    def get(self, place: Place) -> Value | None:
        """The value at a place; None where there is none."""
        kind, video, key = place
        by_video = self._by_video.get(kind)
        by_name = self._by_name[kind] if by_video is None else by_video.get(video, {})
        value: Value | None = by_name.get(video if kind in ONE_A_VIDEO else key)
        return value

    def put(self, change: Change) -> None:
        """Let the change's value after it be the one at its place."""
        kind, video, key = change.place
        by_video = self._by_video.get(kind)
        by_name = self._by_name[kind] if by_video is None else by_video.setdefault(video, {})
        name = video if kind in ONE_A_VIDEO else key
        if change.after is None:
            by_name.pop(name, None)
        else:
            by_name[name] = change.after
        if by_video is not None and not by_name:
            del by_video[video]

    @property
    def _by_video(self) -> dict[str, dict[str, dict[str, Any]]]:
        return {"label": self.labels, "proposal": self.proposals}

    @property
    def _by_name(self) -> dict[str, dict[str, Any]]:
        return {"search": self.searches, "about": self.abouts, "action": self.actions, "subject": self.subjects}

    def apply(self, changes: Iterable[Change]) -> None:
        """Take all changes, or none. Raises ConflictError where a value is not what it was, RequestError."""
        taken: list[Change] = []
        try:
            for change in changes:
                if self.get(change.place) != change.before:
                    raise ConflictError("That has been changed meanwhile, as in another tab.", "look at it again.")
                self.put(change)
                taken.append(change)
            for change in taken:
                self._check(change)
        except (ConflictError, RequestError):
            for change in reversed(taken):
                self.put(change.reversed())
            raise

    def _check(self, change: Change) -> None:
        """Raise RequestError where the values do not go together after a change."""
        value = self.get(change.place)
        if isinstance(value, Label) and value.action != NOTHING and value.action not in self.actions:
            raise RequestError("There is no such action any more.", "add it again.")
        if isinstance(value, Action):
            for key, other in self.actions.items():
                if key != change.key and other.name == value.name:
                    raise RequestError(f"There is an action {value.name!r} already.", "choose another name.")
                if key != change.key and value.key and other.key.lower() == value.key.lower():
                    raise RequestError(f"{value.key!r} is the key of {other.name!r}.", "choose another key.")
        if change.kind == "action" and value is None and self.uses(change.key):
            raise RequestError("The action has labels.", "delete them first.")

    def uses(self, action: str) -> int:
        """How many labels an action has."""
        return sum(label.action == action for labels in self.labels.values() for label in labels.values())

    def ordered(self) -> list[tuple[str, Action]]:
        """The actions in the order of their lanes, with their ids."""
        return sorted(self.actions.items(), key=lambda pair: (pair[1].place, pair[1].name))

    def videos(self) -> list[str]:
        """The videos of which a person has said anything; a proposal alone says nothing."""
        said = (video for video, about in self.abouts.items() if about != About())
        return list(dict.fromkeys([*said, *self.labels]))

    def copy(self) -> "State":
        """The same values, which change no more with this one's."""
        labels = {video: dict(by_id) for video, by_id in self.labels.items()}
        proposals = {video: dict(by_id) for video, by_id in self.proposals.items()}
        of_videos = dict(self.searches), dict(self.abouts)
        return State(labels, proposals, *of_videos, dict(self.actions), dict(self.subjects))
