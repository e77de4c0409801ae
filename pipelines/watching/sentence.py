"""What a person is told of an event, in one sentence."""

import math
import re
from datetime import datetime

from lstr.files.names import displayed
from lstr.pipelines.watching.event import WatchedEvent

# Words alone, as `hall` and `living room`; a source of another name, as `cam2`, is not somewhere one is in.
PLACE = re.compile(r"[^\W\d_]+( [^\W\d_]+)*")
HOURS_A_DAY, DAYS_A_MONTH, DAYS_A_YEAR = 24, 30.44, 365.25


def describe_start(event: WatchedEvent, now: datetime) -> str:
    """The sentence of an event that is new; with its end, where it has ended before anybody could be told.

    Its day is named where that is not today's. The rate of false alarms is left out where the model has none.
    """
    lasted = describe_seconds(event.seconds)
    so_far = f"for {lasted} so far" if event.end is None else f"for {lasted}, until {event.end.astimezone():%H:%M:%S}"
    score = f"{event.top_score:.2f}".removeprefix("0")
    words = f"{title(event)}, {_clock(event.start, now)}, {so_far}, score {score}"
    rate = "" if event.false_alarms is None else describe_rate(event.false_alarms)
    return f"{words}; {rate} at this threshold" if rate else words


def describe_end(event: WatchedEvent, now: datetime) -> str:
    """The sentence of an event that has ended; of one whose source ended, that nobody saw its end."""
    end, lasted = _clock(event.end or event.seen, now), describe_seconds(event.seconds)
    if event.still_on:
        return f"{title(event)} was last seen at {end} after {lasted}, when the source ended"
    return f"{title(event)} ended at {end} after {lasted}"


def title(event: WatchedEvent) -> str:
    """Action and source, also for a channel whose messages have a title."""
    action, source = (" ".join(displayed(name).split()) for name in (event.action, event.source))
    if not (PLACE.fullmatch(source) and source.islower()):
        return f"{action} on {source}"
    return f"{action} in {source}" if source.startswith("the ") else f"{action} in the {source}"


def describe_seconds(seconds: float) -> str:
    """A length of time in at most two units: `4 s`, `2 min 5 s`, `3 h`, `1 day 2 h`."""
    whole = round(seconds)
    if whole < 1:
        return "less than 1 s"
    minutes, s = divmod(whole, 60)
    if not minutes:
        return f"{s} s"
    hours, minutes = divmod(minutes, 60)
    if not hours:
        return f"{minutes} min {s} s" if s else f"{minutes} min"
    days, hours = divmod(hours, HOURS_A_DAY)
    if not days:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    day = "1 day" if days == 1 else f"{days} days"
    return f"{day} {hours} h" if hours else day


def describe_rate(an_hour: float) -> str:
    """How often there is a false alarm; nothing for what is no rate.

    A rate of 0 says what was measured and no more: that none was met does not mean that none will come.
    """
    if not 0 <= an_hour < math.inf:
        return ""
    if an_hour == 0:
        return "no false alarm was measured"
    for times, unit in ((an_hour, "an hour"), (an_hour * HOURS_A_DAY, "a day")):
        if times > 2 / 3:
            count = round(times)
            return f"about {count} false alarms {unit}" if count > 1 else f"about one false alarm {unit}"
    days = 1 / (an_hour * HOURS_A_DAY)
    if days < 2 * DAYS_A_MONTH:
        return f"about one false alarm in {round(days)} days"
    if days < DAYS_A_YEAR:
        return f"about one false alarm in {round(days / DAYS_A_MONTH)} months"
    return "less than one false alarm a year"


def _clock(time: datetime, now: datetime) -> str:
    here = time.astimezone()
    return f"{here:%H:%M:%S}" if here.date() == now.astimezone().date() else f"{here:%Y-%m-%d %H:%M:%S}"
