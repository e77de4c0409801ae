"""Docstrings and help as reStructuredText: they are written to be read as they are, so what would be markup is not."""

import re

ARRAY = re.compile(r"~?[\w.]*ndarray\[~?[\w.]*tuple\[~?[\w.]*Any, \.\.\.\], ~?[\w.]*dtype\[~?([\w.]+)\]\]")
CODE = re.compile(r"``[^`]+``|`[^`]+`")


def literal(text: str) -> str:
    """A line in which `code` is code and every other sign stands for itself."""
    parts, last = [], 0
    for found in CODE.finditer(text):
        parts += [_plain(text[last : found.start()]), f"``{found[0].strip('`')}``"]
        last = found.end()
        if last < len(text) and (text[last].isalnum() or text[last] == "_"):
            parts.append("\\ ")
    return "".join([*parts, _plain(text[last:])])


def _plain(text: str) -> str:
    return re.sub(r"([\\*|`])|(_)(?=\W|$)", lambda found: "\\" + found[0], text)


def paragraphs(lines: list[str]) -> list[str]:
    """Lines of a docstring; what is indented, and what looks like a table, is shown as it is written."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.rstrip())
        elif blocks[-1]:
            blocks.append([])
    made: list[str] = []
    for block in blocks:
        indented = [line.startswith("    ") or line.startswith("  ") for line in block]
        if block and any(indented):
            made += ["::", "", *(f"    {line}" for line in block), ""]
        elif block:
            made += [*map(literal, block), ""]
    return made


def clean_docstring(app, what, name, obj, options, lines: list[str]) -> None:
    """Sphinx's event of a docstring."""
    lines[:] = paragraphs(lines)


def clean_signature(app, what, name, obj, options, signature: str | None, returns: str | None):
    """Sphinx's event of a signature: a typed array as the code writes it, and no address of an object."""
    return _typed(signature), _typed(returns)


def _typed(text: str | None) -> str | None:
    text = text and ARRAY.sub(lambda found: f"NDArray[{found[1].rpartition('.')[2]}]", text)
    return text and re.sub(r"<[^<>]*>", "...", text)


def clean_help(app, context, lines: list[str]) -> None:
    """sphinx-click's event: what it made of a command's help or options; its line blocks become code."""
    made: list[str] = []
    for line in lines:
        if line.startswith("|"):
            if not (made and made[-1].startswith("    ")):
                made += [".. code-block:: text", ""]
            made.append("   " + line.removeprefix("|"))
        else:
            made.append(line if _markup(line) else literal(line))
    lines[:] = made


def _markup(line: str) -> bool:
    """Whether sphinx-click made the line itself."""
    return line.lstrip().startswith(("..", ":", "-", "**")) or not line.strip()
