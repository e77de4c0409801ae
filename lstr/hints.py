"""Arguments in sentences: errors, hints and notices name them by marks, which each face says in its own words.

A mark is `[[NAME]]` or `[[NAME=VALUE]]`, where NAME is an argument of the job: `[[output]]`, `[[workers=1]]`,
`[[resume=true]]`, `[[weights.rgb=FILE]]`, `[[model.n_heads=8]]`. Python says `workers=1`, the command line
`--workers 1`; commands to type into a shell stay as they are.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

NETWORKS, THRESHOLDS = 'networks={{"{0}": {1}}}', 'thresholds={{"{0}": {1}}}'
IN_DETECT = {
    **dict.fromkeys(("algorithm", "allow_mismatch", "flow_backend", "flow_threads", "runtime", "weights"), NETWORKS),
    **dict.fromkeys(("on", "off", "min_length", "merge_gap"), THRESHOLDS),
    "start": "limits=Limits({0}={1})",
    "timeout": "live=LiveOptions({0}={1})",
}
"""Arguments that `lstr.detect` has within others."""
WITHIN = {
    "weights": 'weights={{"{0}": {1}}}',
    "init": 'inits={{"{0}": {1}}}',
    "recipe": "{0}={1}",
    "settings": 'settings={{"{0}": {1}}}',
}
"""By the first part of a name with dots, where the rest is given."""


def in_words(text: str, words: Callable[[str, str], str]) -> str:
    """A sentence with each of its marks as `words(name, value)`; value is empty where the mark has none."""
    said, *pieces = text.split("[[")
    for piece in pieces:
        mark, end, rest = piece.partition("]]")
        name, _, value = mark.partition("=")
        is_mark = end and all(part.isidentifier() for part in name.split("."))
        said += words(name, value) + rest if is_mark else f"[[{piece}"
    return said


def in_file(text: str) -> str:
    """A sentence with its marks as NAME=VALUE, for files, which have no face."""
    return in_words(text, lambda name, value: f"{name}={value}" if value else name)


def in_python(text: str, name: str = "") -> str:
    """A sentence with its marks as arguments of `lstr.NAME`."""
    return in_words(text, lambda argument, value: _argument(argument, value, name))


def _argument(name: str, value: str, function: str) -> str:
    head, dot, tail = name.partition(".")
    written = _written(value)
    if head == "model" and function in ("detect", "load"):
        return f'overrides={{"{tail}": {written or "…"}}} of lstr.load'
    if function == "detect" and head in IN_DETECT:
        return IN_DETECT[head].format(tail or head, written or "…")
    if not dot:
        return f"{name}={written}"
    if head not in WITHIN:
        head, tail = "settings", name
    return WITHIN[head].format(tail.replace(".", "_") if head == "recipe" else tail, written)


def _written(value: str) -> str:
    """A value as Python has it: numbers and placeholders (FILE) bare, other text in quotes."""
    try:
        float(value)
    except ValueError:
        bare = not value or value == "…" or value.isupper() or value[0] in "'\""
        return value.title() if value in ("true", "false") else value if bare else f'"{value}"'
    return value


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
    say(error, lambda text: in_python(text, name))
    note = f"hint: {getattr(error, 'hint', '')}"
    if note != "hint: " and note not in getattr(error, "__notes__", ()):
        error.add_note(note)


def say(error: Exception, words: Callable[[str], str]) -> None:
    """Put what a typed error says, and its hint, into the words of a face."""
    if (hint := getattr(error, "hint", None)) is not None:
        error.hint = words(hint)  # type: ignore[attr-defined]  # any typed error has one
        error.args = tuple(words(part) if isinstance(part, str) else part for part in error.args)
