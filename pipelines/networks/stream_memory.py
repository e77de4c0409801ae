"""What networks remember of a stream of video, in a file: a stream goes on to the bit where it stopped."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from lstr.extractors.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.memory import StreamMemory
from lstr.extractors.recipe import Recipe
from lstr.pipelines.files.atomic import replacing

FORMAT = "lstr-memory/1"


def save_memory(path: str | Path, memory: StreamMemory, recipe: Recipe) -> None:
    """Write what the networks of a recipe remember of one stream, whole or not at all. Raises OutputError."""
    tensors = {f"{stream}.{n}": t.contiguous() for stream, state in memory.states.items() for n, t in enumerate(state)}
    about = {
        "format": FORMAT,
        "recipe": recipe.id,
        "tensors": json.dumps({s: len(t) for s, t in memory.states.items()}),
    }
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(save(tensors, about))


def restore_memory(path: str | Path, recipe: Recipe, device: str = "cpu") -> StreamMemory:
    """What `save_memory` wrote, for the networks of the same recipe on a device.

    Raises MissingPathError where there is no such file, WeightsError where it is damaged, RecipeError for networks of
    another recipe.
    """
    if not Path(path).is_file():
        raise MissingPathError(f"{path} is not a file.", "name a file that save_memory wrote.")
    try:
        with safe_open(path, "pt", device=device) as file:
            about = file.metadata() or {}
            if about.get("format") != FORMAT:
                raise ValueError("of another format")
            counts = json.loads(about["tensors"])
            states = {s: tuple(file.get_tensor(f"{s}.{n}") for n in range(counts[s])) for s in counts}
    except (SafetensorError, LookupError, TypeError, ValueError) as error:
        raise WeightsError(f"{path} holds no memory of a stream ({error}).", "begin the stream anew.") from error
    if about["recipe"] != recipe.id:
        raise RecipeError(
            f"{path} was written by the recipe {about['recipe']}, and this one is {recipe.id}.",
            "go on with the networks that it was written by.",
        )
    return StreamMemory(states)
