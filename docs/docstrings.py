"""Docstrings and help as reStructuredText: they are written to be read as they are, so what would be markup is not."""

import re

ARRAY = re.compile(r"~?[\w.]*ndarray\[~?[\w.]*tuple\[~?[\w.]*Any, \.\.\.\], ~?[\w.]*dtype\[~?([\w.]+)\]\]")
CODE = re.compile(r"``[^`]+``|`[^`]+`")


def literal(text: str) -> str:
    """Convert a line of Markdown to reStructuredText: `code` becomes literal, and special characters are escaped."""
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
    """Convert the lines of a docstring; indented lines and tables become literal blocks."""
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
    """Handle sphinx-click's event for a command's help or options: convert line blocks to code."""
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
    """Return whether sphinx-click made the line itself."""
    return line.lstrip().startswith(("..", ":", "-", "**")) or not line.strip()
