"""Hints in the words of Python: jobs name options of the command line, whose arguments Python callers need."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

OPTION = re.compile(r"(?<![\w/.-])(--[a-z][a-z-]*[a-z]|-[cfmo](?=[ .,;)`]|$))(?:[ =]('[^']*'|[^\s,;`]+))?")
OTHERS = re.compile(r"(`(?!-)[^`]*`|\b(?:pip|torchrun) .*)")
"""Commands to type into a shell, which stay as they are."""

ARGUMENTS = {"-c": "checkpoint", "-f": "formats", "-m": "checkpoint", "-o": "output", "--set": "settings"}
"""Options whose argument has another name; of all others it is the option's."""

FLAGS = ("--allow-damaged", "--allow-recipe-mismatch", "--allow-seen", "--published", "--resume", "--skip-missing")
"""Options without a value."""

WORDS = ("auto", "csv", "dis", "farneback", "random", "ray", "testing", "training", "tvl1", "validation")
"""Values that are lower-case words, which otherwise go on with the sentence."""

OVERRIDES = "overrides={{{}}} of lstr.load"
PLACES = {
    "detect": {
        "--allow-recipe-mismatch": 'networks={{"allow_mismatch": True}}',
        "--flow": 'networks={{"algorithm": {}}}',
        "--flow-backend": 'networks={{"flow_backend": {}}}',
        "--flow-weights": 'networks={{"flow": {}}}',
        "--off": 'thresholds={{"off": {}}}',
        "--on": 'thresholds={{"on": {}}}',
        "--rgb-weights": 'networks={{"rgb": {}}}',
        "--set": OVERRIDES,
        "--start": "limits=Limits(start={})",
        "--timeout": "live=LiveOptions(timeout={})",
        "--workers": 'networks={{"workers": {}}}',
    },
    "load": {"--set": OVERRIDES},
}
"""By function, options that are within an argument."""


def for_python(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """A function as `lstr.NAME`: its errors, and those of an iterator that it returns, speak of arguments."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = function(*args, **kwargs)
        except Exception as error:
            explain(error, name)
            raise
        return _each(result, name) if isinstance(result, Iterator) else result

    call.__module__, call.__qualname__ = "lstr", name
    return call


def _each(iterator: Iterator, name: str) -> Iterator:
    try:
        return (yield from iterator)
    except Exception as error:
        explain(error, name)
        raise


def explain(error: Exception, name: str) -> None:
    """Put an error with a hint into the words of Python, and its hint under the traceback, once."""
    hint = getattr(error, "hint", None)
    if hint is None:
        return
    error.hint = in_python(hint, name)  # type: ignore[attr-defined]  # any typed error has one
    error.args = tuple(in_python(part, name) if isinstance(part, str) else part for part in error.args)
    note = f"hint: {error.hint}"  # type: ignore[attr-defined]
    if hint and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def in_python(text: str, name: str = "") -> str:
    """A sentence with the options that it names as arguments of `lstr.NAME`."""
    parts = OTHERS.split(text)
    parts[::2] = [OPTION.sub(lambda found: _argument(found, PLACES.get(name, {})), part) for part in parts[::2]]
    return "".join(parts)


def _argument(found: re.Match, places: dict[str, str]) -> str:
    option, word = found[1], (found[2] or "").rstrip(".:)")
    value = word if option not in FLAGS and _is_value(word) else ""
    rest = found[0][found[0].rindex(word) + len(value) if value else len(option) :]
    if option in places:
        return places[option].format(_written(value.removeprefix("model.")) or "…") + rest
    if option in FLAGS:
        return f"{_name(option)}=True{rest}"
    if option == "--set" and value:
        return f"settings={{{_written(value)}}}{rest}"
    return f"{'algorithm' if option == '--flow' and value else _name(option)}={_written(value)}{rest}"


def _name(option: str) -> str:
    return ARGUMENTS.get(option, option.removeprefix("--").replace("-", "_"))


def _is_value(text: str) -> bool:
    return bool(text) and (
        text in WORDS or text[0] in "'0123456789" or text.isupper() or "=" in text or bool(re.search(r"/|\.\w", text))
    )


def _written(value: str) -> str:
    """A value as Python has it: numbers and placeholders (FILE) bare, other text in quotes; KEY=VALUE as an entry."""
    key, equals, entry = value.partition("=")
    if equals:
        return f'"{key}": {_written(entry)}'
    bare = re.fullmatch(r"\d+(\.\d*)?|[A-Z…]*|'.*'", value)
    return value if bare else f'"{value}"'
