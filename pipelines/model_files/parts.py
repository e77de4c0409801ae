"""What a model file is packed from, and unpacked to: a checkpoint, a weights folder, and metrics."""

import json
from pathlib import Path
from typing import Any

from lstr.checkpoint import write_atomically
from lstr.errors import MissingPathError, OutputError
from lstr.extractors.networks.archive import CARD, Archive, member_path
from lstr.extractors.networks.weights_file import DESCRIPTION, FORMAT, file_name, read_card, read_content
from lstr.files.atomic import replacing, write_bytes, write_tensors, write_text
from lstr.files.content import read_text, write_json
from lstr.pipelines.model_files.model_file import ModelFile, open_model

HINT = "give what `lstr evaluate MODEL FEATURES --labels FILE --json` prints."


def checkpoint_of(run: Path) -> Path:
    """The checkpoint of a run's folder, best.pt where it has one; a file is itself. Raises MissingPathError."""
    if not run.is_dir():
        return run
    found = [path for name in ("best.pt", "checkpoint.pt") if (path := run / name).is_file()]
    if not found:
        raise MissingPathError(f"{run} holds no checkpoint.", "give the folder that `lstr train` wrote.")
    return found[0]


def metrics_from(path: str | Path) -> dict[str, Any]:
    """The metrics that `lstr evaluate --json` printed into a file. Raises MissingPathError for any other file."""
    try:
        document = json.loads(read_text(Path(path)))
        json.dumps(document, ensure_ascii=False).encode()  # the card holds them: no lone surrogate
    except (OSError, ValueError, RecursionError) as error:
        raise MissingPathError(f"{path} is no JSON file that can be read ({error}).", HINT) from error
    if not isinstance(document, dict) or not isinstance(document.get("lstr"), dict):
        raise MissingPathError(f"{path} holds no metrics of one model.", HINT)
    return document


def unpack_model(path: str | Path, folder: str | Path) -> Path:
    """Write checkpoint.pt, card.md and, where networks are inside, the weights folder `weights` into a folder; it.

    The tensors are those of the file to the bit. Raises CheckpointError or WeightsError for a file that cannot be read,
    OutputError for a folder that has such files already or cannot be written.
    """
    model, folder = open_model(path), Path(folder)
    taken = next((folder / name for name in ("checkpoint.pt", CARD, "weights") if (folder / name).exists()), None)
    if taken:
        raise OutputError(f"{taken} exists already.", "choose another folder with -o.")
    content = model.content()
    write_bytes(folder / CARD, [Archive(path).read(CARD)])  # as it is: it may be in no encoding at all
    _write_weights(model, folder / "weights")
    write_atomically(folder / "checkpoint.pt", content)
    return folder


def _write_weights(model: ModelFile, folder: Path) -> None:
    inside = [stream for stream in model.networks if model.has_inside(stream)]
    cards = {}
    for stream in inside:
        member = member_path(model.path, stream)
        with replacing(folder / file_name(stream)) as temporary:
            write_tensors(temporary, read_content(member))
        if card := read_card(member):
            cards[stream] = card
    if not inside or len(cards) < len(inside):  # files of one's own, which are no folder of `lstr finetune`
        return
    write_text(folder / "recipe.json", model.recipe.narrowed(inside).without_folds().to_json() + "\n")
    card = cards[inside[0]]
    about = {"format": FORMAT, "name": card.name, "classes": list(card.classes), "streams": inside, "folds": {}}
    metrics = {stream: {"all": {"mAP": found.mAP}} for stream, found in cards.items()}
    write_json(folder / DESCRIPTION, about | {"training": dict(card.seen), "metrics": metrics})
