"""The tables of README and docs that are made from benchmarks/*.json.

A line `<!-- table: NAME -->` stands before each of them. `python docs/tables.py` writes them anew; a test fails when
one differs from its record.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

import tables_of_accuracy
import tables_of_speed
from records import ROOT

MARK = re.compile(r"<!-- table: ([a-z0-9-]+) -->\n\n?((?:\|.*\n)*)\n*")

TABLES: dict[str, Callable[[], Iterator[list]]] = {
    "kinds": tables_of_accuracy.kinds,
    "protocols": tables_of_accuracy.protocols,
    "edge-losses": tables_of_accuracy.edge_losses,
    "unlabelled": tables_of_accuracy.unlabelled,
    "tuning": tables_of_accuracy.tuning,
    "other-cameras": tables_of_accuracy.other_cameras,
    "instances-ut-interaction": partial(tables_of_accuracy.instances, "ut_interaction"),
    "instances-urfall": partial(tables_of_accuracy.instances, "urfall"),
    "instances-thumos-synthetic": partial(tables_of_accuracy.instances, "thumos_synthetic"),
    "recall": tables_of_accuracy.recall,
    "parity": tables_of_accuracy.parity,
    "joined": tables_of_accuracy.joined,
    "small-memory": tables_of_accuracy.small_memory,
    "parts": tables_of_accuracy.parts,
    "results": tables_of_accuracy.results,
    "learnt": tables_of_accuracy.learnt,
    "random-networks": tables_of_accuracy.random_networks,
    "finetuned-networks": tables_of_accuracy.finetuned_networks,
    "held-out": tables_of_accuracy.held_out,
    "synthetic": tables_of_accuracy.synthetic,
    "tvl1": tables_of_speed.tvl1,
    "step": tables_of_speed.step,
    "chain": tables_of_speed.chain,
    "recipes": tables_of_speed.recipes,
    "cameras": tables_of_speed.cameras,
    "frontier": tables_of_speed.frontier,
    "kind-speeds": tables_of_speed.kind_speeds,
    "memory": tables_of_speed.memory,
    "exported": tables_of_speed.exported,
    "video-networks": tables_of_speed.video_networks,
    "hours": tables_of_speed.hours,
    "evaluation": tables_of_speed.evaluation,
}


def markdown(rows: Iterable[list]) -> str:
    """Rows, of which the first is the head, as a Markdown table."""
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    head = lines[0].count("|") - 1
    return "\n".join([lines[0], "|" + "---|" * head, *lines[1:]]).replace("|  |", "| |").replace("|  |", "| |") + "\n"


def pages() -> list[Path]:
    """README and every page of docs."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def with_tables(text: str) -> str:
    """A page with each marked table as its record has it."""
    return MARK.sub(lambda mark: f"<!-- table: {mark[1]} -->\n\n{markdown(TABLES[mark[1]]())}\n", text)


def main() -> int:
    """Write the tables; with --check only say which pages would change, and leave with 1 if any would."""
    changed = [page for page in pages() if with_tables(page.read_text(encoding="utf-8")) != page.read_text("utf-8")]
    for page in changed:
        print(page.relative_to(ROOT))
        if "--check" not in sys.argv:
            page.write_text(with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
    return int("--check" in sys.argv and bool(changed))


if __name__ == "__main__":
    sys.exit(main())
