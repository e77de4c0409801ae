"""For each video the networks that have not seen it, where its weights come in folds."""

from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

from lstr.errors import WeightsError
from lstr.extractors.networks.build import build_network
from lstr.extractors.networks.weights_file import ModelCard, network_file, read_card
from lstr.extractors.networks.weights_folder import blind_fold, cards_of
from lstr.extractors.run import TwoStream

KEPT = 4  # pairs of networks besides that of all videos; each takes some hundred megabytes, and a second to make


@dataclass(frozen=True)
class Chosen:
    """The networks for one video, and what its record says of them."""

    twostream: TwoStream
    fold: int | None
    """The fold whose networks these are; None for those of all videos."""
    seen: tuple[str, ...] | None
    """The streams whose network has seen this video; None where no weights say what they have seen."""

    def to_dict(self) -> dict[str, Any]:
        """The entries of a record."""
        recipe = self.twostream.recipe
        networks = {stream: recipe.parts[stream].sha256 for stream in recipe.streams}
        return {"networks": networks, "fold": self.fold, **({} if self.seen is None else {"seen": list(self.seen)})}


class FoldNetworks:
    """The networks of a recipe: `twostream`, and those of its folds, made when a video first needs them.

    without: the fold that the networks of every video lack, 0 for those of all videos; None for the video's own. Raises
    WeightsError where the weights at hand lack what the recipe's folds need, or do not say what they have seen.
    """

    def __init__(self, twostream: TwoStream, without: int | None = None):
        self.twostream, self.without = twostream, without
        self.recipe = twostream.recipe
        self.cards: dict[str, tuple[ModelCard, ...]] = {}
        """Cards of the streams whose weights say what they have seen."""
        for stream in self.recipe.streams:
            source, folds = twostream.sources.files.get(stream), self.recipe.parts[stream].folds
            if folds and not (source and network_file(source, stream, 1) != network_file(source, stream)):
                raise WeightsError(
                    f"The features come from {len(folds)} {stream} networks, each of which has not seen a fold, "
                    f"and {source or 'nothing'} was named.",
                    f"give their folder as --weights {stream}=DIR, or as --recipe DIR.",
                )
            if folds and source:
                self.cards[stream] = cards_of(source, stream, len(folds))
            elif source and (card := read_card(network_file(source, stream))):
                self.cards[stream] = (card,)
        self._made = lru_cache(KEPT)(self._make)
        self._making = Lock()

    def of(self, video_id: str, sha256: str | None) -> Chosen:
        """The networks for a video of this id, and of a file of this SHA-256 where it is known.

        Raises WeightsError where a fold's file is not the recipe's.
        """
        if not self.cards:
            return Chosen(self.twostream, None, None)
        folds = {stream: blind_fold(cards, video_id, sha256) for stream, cards in self.cards.items()}
        if self.without is not None:
            folds = dict.fromkeys(folds, self.without or None)
        seen = (s for s, cards in self.cards.items() if cards[folds[s] or 0].has_seen(video_id, sha256))
        with self._making:
            twostream = self._made(**folds) if any(folds.values()) else self.twostream
        return Chosen(twostream, next(filter(None, folds.values()), None), tuple(seen))

    def _make(self, **folds: int | None) -> TwoStream:
        networks = dict(self.twostream.networks)
        parts: dict[str, Any] = {}
        sources = self.twostream.sources
        for stream, fold in folds.items():
            part, source = self.recipe.parts[stream], sources.files.get(stream)
            if fold and source:
                networks[stream], parts[stream] = build_network(stream, part, sources, fold)
                if parts[stream].sha256 != part.folds[fold - 1]:
                    raise WeightsError(
                        f"{network_file(source, stream, fold)} is {parts[stream].sha256}, the "
                        f"features come from {part.weights} {part.folds[fold - 1]}.",
                        f"give the folder they were made with as --weights {stream}=DIR.",
                    )
        whole = self.twostream
        return TwoStream(networks, self.recipe.having(parts), whole.device, sources, whole.options)
