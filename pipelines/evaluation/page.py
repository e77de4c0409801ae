"""The HTML page of an evaluation: static, self-contained, light and dark, from a phone's width up."""

import base64
import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

STYLE = """
:root { color-scheme: light dark; --page: #f4f6f8; --card: #fff; --ink: #18202c; --soft: #5a6678; --line: #e3e8ee;
  --warn: #fff4dc; --warn-ink: #6b4700; }
@media (prefers-color-scheme: dark) { :root { --page: #0f1319; --card: #171c24; --ink: #e6ebf2; --soft: #98a4b5;
  --line: #262e3a; --warn: #33290f; --warn-ink: #f2d48b; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1500px; padding: 20px 14px 40px; background: var(--page); color: var(--ink);
  font: 14px/1.45 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", Arial, sans-serif;
  font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h1 { margin: 0 0 4px; font-size: 21px; } h2 { margin: 26px 0 10px; font-size: 17px; }
h3 { margin: 0 0 2px; font-size: 14px; } p { margin: 0 0 8px; } .soft { color: var(--soft); font-size: 13px; }
.card { padding: 12px 14px; border: 1px solid var(--line); border-radius: 10px; background: var(--card);
  margin: 0 0 14px; min-width: 0; }
.warn { background: var(--warn); color: var(--warn-ink); }
.grid { columns: 400px; column-gap: 14px; } .grid .card { break-inside: avoid; }
figure { margin: 0; } img { display: block; width: 100%; max-width: 460px; height: auto; margin: 0 auto; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; min-width: 100%; }
th, td { padding: 3px 9px; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; font-size: 12px; } th:first-child, td:first-child { text-align: left; }
tr:last-child td { border-bottom: 0; } .total td { font-weight: 650; }
@media (max-width: 560px) { th, td { padding: 3px 6px; font-size: 12px; } }
"""


@dataclass(frozen=True)
class Section:
    """A figure of the page."""

    group: str
    """The checkpoint it is of, where there are several"""
    name: str
    title: str
    note: str
    svg: bytes


def build_page(
    judged: Sequence[tuple[str, dict]],
    comparison: Sequence[dict],
    quoted: dict | None,
    sections: Sequence[Section],
    warnings: Sequence[str],
) -> str:
    """The page of (name, document) pairs. Every name is escaped; no script runs and nothing is fetched."""
    style_hash = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{style_hash}'; img-src data:; base-uri 'none'; form-action 'none'"
    several = len(judged) > 1
    first = judged[0][1]
    title = f"{len(judged)} checkpoints compared" if several else f"Evaluation of {judged[0][0]}"
    body = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="soft">{escape(_about(first))}</p>',
        *(f'<p class="card warn">{escape(text)}</p>' for text in warnings),
        _card(_means(judged)),
        _card(_differences(judged, comparison)) if several else "",
        _card(_quoted(quoted, judged)) if quoted else "",
        _figures([s for s in sections if not s.group]),
    ]
    for name, document in judged:
        if several:
            body += [f"<h2>{escape(name)}</h2>", _figures([s for s in sections if s.group == name])]
        body += [_card(_classes(document)), _card(_stages(document))]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<title>{escape(title)}</title>\n'
        f'<link rel="icon" href="data:,">\n<style>{STYLE}</style>\n</head>\n<body>\n'
        + "\n".join(part for part in body if part)
        + "\n</body>\n</html>\n"
    )


def figure_text(value: float | None, digits: int = 3) -> str:
    """A number for people; a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def interval_text(edges: Sequence[float] | None, sign: str = "") -> str:
    """A confidence interval for people; nothing where there is none."""
    if edges is None or not all(map(math.isfinite, edges)):
        return ""
    return f"[{edges[0]:{sign}.3f}, {edges[1]:{sign}.3f}]"


def videos_text(found: dict) -> str:
    """How many videos a mean is of, and how many of them networks of their features have seen."""
    return f"{found['videos']}, {found['seen']} seen" if "seen" in found else str(found["videos"])


def _about(document: dict) -> str:
    parts = [f"{document['videos']} videos", f"{document['chunks']} chunks of 0.25 s", document["convention"]]
    parts[2] += " convention"
    if document["absent_classes"]:
        parts.append(f"without a positive chunk, and in no mean: {', '.join(document['absent_classes'])}")
    if document["interval"]:
        level, resamples = document["interval"]["level"], document["interval"]["resamples"]
        parts.append(f"in brackets {100 * level:.0f} % intervals of {resamples} resamples of the videos")
    return "; ".join(parts) + "."


def _means(judged: Sequence[tuple[str, dict]]) -> str:
    rows = []
    for name, document in judged:
        for convention, found in document["conventions"].items():
            edges = (document["interval"] or {}) if convention == document["convention"] else {}
            means = [f"{figure_text(found[mean])} {interval_text(edges.get(mean))}" for mean in ("mAP", "mcAP")]
            rows.append([f"{name}, {convention}", *means, videos_text(found), str(found["chunks"])])
    for system in ("chance", "time_prior"):
        if system in judged[0][1]:
            means = [figure_text(judged[0][1][system][mean]) for mean in ("mAP", "mcAP")]
            rows.append([system.replace("_", " "), *means, "", ""])
    return "<h3>Means</h3>" + _table(["", "mAP", "mcAP", "videos", "chunks"], rows)


def _differences(judged: Sequence[tuple[str, dict]], comparison: Sequence[dict]) -> str:
    rows = []
    for (name, _), row in zip(judged[1:], comparison, strict=True):
        cells = [f"{row[m]['difference']:+.3f} {interval_text(row[m].get('interval'), '+')}" for m in ("mAP", "mcAP")]
        rows.append([name, *cells])
    note = (
        '<p class="soft">On the same resamples of the videos; an interval without 0 is a difference they agree on.</p>'
    )
    return f"<h3>Ahead of {escape(judged[0][0])}</h3>{note}" + _table(["", "mAP", "mcAP"], rows)


def _quoted(quoted: dict, judged: Sequence[tuple[str, dict]]) -> str:
    metric = quoted["metric"]
    rows = [
        [row["method"], row["features"], f"{row['value']:.1f}", f"quoted: {row['source']}"] for row in quoted["rows"]
    ]
    rows += [[name, "", figure_text(100 * document["lstr"][metric], 1), "this evaluation"] for name, document in judged]
    left_out = ", ".join(quoted["left_out"])
    note = f'<p class="soft">Rows of the table in the LSTR paper that are not at hand: {escape(left_out)}.</p>'
    title = f"<h3>{escape(quoted['name'])}, quoted, {metric} in per cent</h3>"
    return title + _table(["", "features", metric, "source"], rows) + note


def _classes(document: dict) -> str:
    ours, delays = document["lstr"]["per_class"], document["delay"]["per_class"]
    systems = [name for name in ("chance", "time_prior") if name in document]
    columns = ["class", "chunks", "AP", "cAP", *(f"{s.replace('_', ' ')} AP" for s in systems)]
    rows = []
    for label in sorted(ours, key=lambda label: -ours[label]["AP"]):
        delay = delays.get(label, {"actions": 0, "detected": 0, "median": None})
        rows.append([label, str(ours[label]["positives"]), *(figure_text(ours[label][key]) for key in ("AP", "cAP"))])
        rows[-1] += [figure_text(document[s]["per_class"][label]["AP"]) for s in systems]
        rows[-1] += [f"{delay['detected']} of {delay['actions']}", figure_text(delay["median"], 2)]
    total = ["mean", "", *(figure_text(document["lstr"][key]) for key in ("mAP", "mcAP"))]
    total += [figure_text(document[s]["mAP"]) for s in systems]
    total += [f"{document['delay']['detected']} of {document['delay']['actions']}"]
    total += [figure_text(document["delay"]["median"], 2)]
    return "<h3>Classes</h3>" + _table([*columns, "detected", "median delay, s"], [*rows, total], total=True)


def _stages(document: dict) -> str:
    columns = ["", *(row["stage"] for row in document["stages"]["corrected"])]
    rows = [
        [f"{mean}, {name}", *(figure_text(row[mean]) for row in stages)]
        for name, stages in document["stages"].items()
        for mean in ("mAP", "mcAP")
    ]
    offsets = [f"{offset} s" for offset in document["starts"]["offsets"]]
    starts = _table(["mAP of starts within", *offsets], [["", *map(figure_text, document["starts"]["mAP"])]])
    return "<h3>Portions of the actions, and starts</h3>" + _table(columns, rows) + starts


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], total: bool = False) -> str:
    rows = list(rows)
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    body = "".join(f"<tr>{line}</tr>" for line in (lines[:-1] if total else lines))
    body += f'<tr class="total">{lines[-1]}</tr>' if total else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _figures(sections: Sequence[Section]) -> str:
    shown = []
    for section in sections:
        address = base64.b64encode(section.svg).decode()
        note = f'<p class="soft">{escape(section.note)}</p>' if section.note else ""
        image = f'<img alt="{escape(section.title)}" src="data:image/svg+xml;base64,{address}">'
        shown.append(f'<figure class="card"><h3>{escape(section.title)}</h3>{note}{image}</figure>')
    return f'<div class="grid">{"".join(shown)}</div>' if shown else ""


def _card(content: str) -> str:
    return f'<div class="card">{content}</div>'
