"""Parts of a page of tables and figures: cards, what is folded, notes, tables, drawings. Every text is escaped."""

import base64
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Drawing:
    """A figure of the page."""

    group: str
    """The checkpoint that it is of, when several are compared"""
    title: str
    note: str
    svg: bytes
    first: bool = False
    """Whether it is seen at once; the others are folded"""


def card(content: str) -> str:
    """Markup in a frame of its own."""
    return f'<section class="card">{content}</section>'


def folded(title: str, content: str) -> str:
    """Markup that a click on its title shows."""
    return f'<details class="card"><summary><h2>{escape(title)}</h2></summary>{content}</details>'


def note(text: str) -> str:
    """A paragraph that explains."""
    return f'<p class="soft">{escape(text)}</p>'


def draw_table(columns: Sequence[str], rows: Iterable[Sequence[str]], total: bool = False) -> str:
    """A table of texts; the last row stands out where it is a `total`."""
    rows = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in (lines[:-1] if total else lines))
    body += f'<tr class="total">{lines[-1]}</tr>' if total else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def show_figures(drawings: Sequence[Drawing]) -> str:
    """Drawings side by side as far as there is room; empty without any."""
    shown = []
    for drawing in drawings:
        address = base64.b64encode(drawing.svg).decode()
        about = note(drawing.note) if drawing.note else ""
        image = f'<img alt="{escape(drawing.title)}" src="data:image/svg+xml;base64,{address}">'
        shown.append(f'<figure class="card"><h3>{escape(drawing.title)}</h3>{about}{image}</figure>')
    return f'<div class="grid">{"".join(shown)}</div>' if shown else ""
