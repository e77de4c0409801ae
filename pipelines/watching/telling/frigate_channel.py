"""Frigate as a channel: an event is created and ended in it, or a person whom it follows gets a sub-label."""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from math import ceil
from typing import Any

from lstr.pipelines.watching.config import ChannelConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History, Notice
from lstr.pipelines.watching.telling.channel import Channel, NeverToldError, UntoldError
from lstr.pipelines.watching.telling.frigate_api import FrigateApi, RefusedError, TheirEvent

MARK = "lstr"
"""The sub-label of events that are created: it says who has."""
PERSON = "person"
SETTLING = 3.0
"""Seconds after which Frigate shows an event that it has created."""
KNOWN = timedelta(minutes=1)
"""An event that was created so long ago, and is not known any more, was deleted."""
PATIENCE = timedelta(seconds=30)
"""For how long after a decision a person is looked for."""
APART = 5.0
"""Seconds by which the clocks of two machines may differ."""
LOST = timedelta(days=1, minutes=10)
"""After which whether an event was created is no longer tried to be known by telling of it again."""
MOST = 1000
"""Events that are remembered."""

CameraOf = Callable[[str], str]
"""What Frigate calls the camera of a source."""


class FrigateEvents(Channel):
    """Creates an event in Frigate when one begins, without an end, and ends it there at its end. Raises ChannelError.

    The history keeps which of Frigate's events is which, over a restart. Before one is asked for it is noted; where the
    answer is lost the next try first looks for it among those that go on, by camera, label, MARK and score, and takes
    that one for its own. One of which Frigate shows nothing is created, so that a lost answer never leaves one open.
    """

    def __init__(self, name: str, config: ChannelConfig, camera_of: CameraOf, history: History):
        super().__init__(name)
        self._api = FrigateApi(name, config)
        self._config, self._camera_of, self._history = config, camera_of, history
        self._kept = f"frigate {name}"
        self._closing = threading.Event()

    def tell(self, notice: Notice, now: datetime) -> None:
        made: dict[str, dict[str, Any]] = self._history.kept(self._kept) or {}
        if notice.phase == "new":
            self._begin(notice.event, now, made)
        else:
            self._end(notice.event, now, made)
        self._end_lost(now, made)

    def abort(self) -> None:
        self._closing.set()
        self._api.abort()

    def _begin(self, event: WatchedEvent, now: datetime, made: dict[str, dict[str, Any]]) -> None:
        camera = self._camera_of(event.source)
        note = made.get(event.id)
        if note and note["id"]:
            return
        if note:
            self._let_settle(now.timestamp() - note["asked"])
            if found := self._find(note, made):
                self._note(made, event.id, note | {"id": found.id})
                return
        note = {"asked": now.timestamp(), "id": "", "camera": camera, "label": event.action, "score": event.score}
        self._note(made, event.id, note)
        values = {
            "sub_label": MARK,
            "score": event.score,
            "duration": None,
            "include_recording": self._config.recording,
            # Frigate counts from when it is asked, which may be long after the action began
            "pre_capture": ceil(max(0.0, (now - event.start).total_seconds()) + self._config.pre_capture),
        }
        try:
            created = self._api.create(camera, event.action, values)
        except RefusedError:
            self._note(made, event.id, None)
            raise
        self._note(made, event.id, note | {"id": created})

    def _end(self, event: WatchedEvent, now: datetime, made: dict[str, dict[str, Any]]) -> None:
        """End what was created for an event; nothing where that is not known."""
        if note := made.get(event.id):
            self._finish(note, event.end or event.seen, now, made)
            self._note(made, event.id, None)

    def _finish(self, note: dict[str, Any], end: datetime, now: datetime, made: dict[str, dict[str, Any]]) -> None:
        """End Frigate's event of a note, which may have gone."""
        event_id = note["id"]
        if not event_id:
            found = self._find(note, made)
            if found is None:
                return
            event_id = found.id
        try:
            try:
                self._api.end(event_id, end.timestamp())
            except RefusedError as error:
                if error.status != 400:
                    raise
                self._api.end(event_id, None)  # by its clock it has not begun by then
        except RefusedError as error:
            if error.status != 404:
                raise
            if now.timestamp() - note["asked"] < KNOWN.total_seconds():
                raise UntoldError("it does not know the event that it has created.") from None

    def _end_lost(self, now: datetime, made: dict[str, dict[str, Any]]) -> None:
        """End what may be open for events that are over, and of which nobody is told any more."""
        for event_id, note in [*made.items()]:
            event = self._history.find(event_id)
            if now.timestamp() - note["asked"] > LOST.total_seconds() and (event is None or event.end):
                with suppress(UntoldError):  # another notice has arrived: with the next one it is tried again
                    self._finish(note, event.end if event and event.end else now, now, made)
                    self._note(made, event_id, None)

    def _let_settle(self, passed: float) -> None:
        """Wait until Frigate shows what it was asked for so many seconds ago."""
        if passed < SETTLING and self._closing.wait(SETTLING - max(0.0, passed)):
            raise UntoldError("the program is ending.")

    def _find(self, note: dict[str, Any], made: dict[str, dict[str, Any]]) -> TheirEvent | None:
        """The event that Frigate has created without our having its answer."""
        others = {other["id"] for other in made.values()}
        for event in self._api.events(note["camera"], note["label"], in_progress=1):
            same = event.score is not None and abs(event.score - note["score"]) < 1e-6
            if event.is_manual and event.sub_label == MARK and same and event.id not in others:
                return event
        return None

    def _note(self, made: dict[str, dict[str, Any]], event_id: str, note: dict[str, Any] | None) -> None:
        """Keep what is known of the event in Frigate, or forget it."""
        if note is None:
            made.pop(event_id, None)
        else:
            made[event_id] = note
            while len(made) > MOST:
                made.pop(next(iter(made)))
        self._history.keep(self._kept, made or None)


class FrigateLabels(Channel):
    """Sets the action as sub-label of the person whom Frigate follows on the camera. Raises ChannelError.

    Of several it is one that Frigate still follows, the newest; else the newest of whom it has lost sight since the
    action began. Where there is none for PATIENCE after the decision, nobody is told.
    """

    updates = False

    def __init__(self, name: str, config: ChannelConfig, camera_of: CameraOf):
        super().__init__(name)
        self._api = FrigateApi(name, config)
        self._camera_of = camera_of

    def tell(self, notice: Notice, now: datetime) -> None:
        event = notice.event
        camera = self._camera_of(event.source)
        begin, end = event.start.timestamp() - APART, (event.end or event.seen).timestamp() + APART
        persons = [
            person
            for person in self._api.events(camera, PERSON)
            if person.start <= end and (person.end is None or person.end >= begin)
        ]
        if not persons:
            reason = f"Frigate follows no person on {camera}."
            raise NeverToldError(reason) if now - event.decided > PATIENCE else UntoldError(reason)
        person = max(persons, key=lambda person: (person.end is None, person.start))
        self._api.set_sub_label(person.id, event.action, event.top_score)

    def abort(self) -> None:
        self._api.abort()
