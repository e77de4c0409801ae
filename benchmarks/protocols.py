"""What TOAD's protocol of evaluation alone is worth: the same scores by it and by the standard one, protocols.json.

    lstr extract SHARED/data/ut_interaction/videos -o WORK/ut_interaction --recipe RECIPE.json
    lstr extract SHARED/data/urfall/videos -o WORK/urfall --recipe RECIPE.json
    nice python benchmarks/protocols.py SHARED/data --work WORK

Its loader leaves background out of the videos that are tested, so that a false alarm there is never ranked. Each kind
is trained as `lstr-small` on frozen ImageNet features of EfficientNet-Lite0 (RECIPE.json: `{"rgb": {"network":
"efficientnet-lite0", "weights": "imagenet"}, "flow": null}`) in three folds, and every video is scored by a model that
has not seen it; nothing is tuned. On THUMOS'14 the oracles of `thumos_synthetic.py` are scored, on its real labels and
drawn features, and what the labels of other videos alone guess. What is already in WORK is kept.
"""

import argparse
from pathlib import Path

import numpy as np
from finetuned import folds_of
from held_out import HeldOut, Scores, Settings
from oracle import Oracle
from synthetic_features import Generator, read_targets
from thumos_synthetic import SMALL, make_videos

from lstr.labels.label_set import THUMOS_CLASSES, read_labels
from lstr.metrics import per_frame as metrics
from lstr.metrics.scoring_rule import EVERY_CHUNK, TOAD_RULE, ScoringRule
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.provenance import about_machine

PRESET = "lstr-small"
SETS = ("ut_interaction", "urfall")
KINDS: dict[str, Settings] = {
    "linear": {"penalty": "1e4", "chunks": "4"},
    "rnn": {"model.kind": "rnn"},
    "lstr": {"model.kind": "lstr"},
    "miniroad": {"model.kind": "miniroad"},
    "oadtr": {"model.kind": "oadtr"},
    "toad": {"model.kind": "toad"},
}
"""On top of the preset, whose window is TOAD's; its texts are random, for no CLIP is at hand."""
ORACLES = {"oracle of 1 chunk": 1, "oracle of 8 chunks": 8, "oracle of 32 chunks": 32, "oracle of all chunks": None}
RULES = {"standard": EVERY_CHUNK, "toad": TOAD_RULE}


def measured(scores: list[np.ndarray], targets: list[np.ndarray], classes: tuple[str, ...]) -> dict[str, float]:
    """mAP and mcAP of videos by both protocols, and what the second adds."""

    def by(rule: ScoringRule) -> dict:
        keeps = [rule.chosen(truth, classes) for truth in targets]
        rows = np.concatenate([rule.scored(s[keep], classes) for s, keep in zip(scores, keeps, strict=True)])
        truth = np.concatenate([rule.labelled(t[keep], classes) for t, keep in zip(targets, keeps, strict=True)])
        return metrics.per_frame(rows, truth, classes)

    found = {name: by(rule) for name, rule in RULES.items()}
    means = {f"{name} {mean}": round(of[mean], 4) for name, of in found.items() for mean in ("mAP", "mcAP")}
    return means | {"gain": round(found["toad"]["mAP"] - found["standard"]["mAP"], 4)}


def on_videos(data: Path, work: Path, name: str, seeds: int) -> dict:
    """Each kind on one set of videos, the mean of seeds; and how much of it is background."""
    labels = read_labels(data / name / "labels.json")
    (kept := work / f"{name}.scores").mkdir(exist_ok=True)
    held, ids = HeldOut(open_features(work / name), labels, PRESET, kept), sorted(labels.videos)
    rows, truth = {}, [held.videos[i].targets for i in ids]
    for kind, settings in KINDS.items():
        runs = []
        for seed in range(1 if kind == "linear" else seeds):
            scores: Scores = {}
            for fold in folds_of(ids):
                scores |= held.scores(settings, seed, [i for i in ids if i not in fold], fold)
            runs.append(measured([scores[i] for i in ids], truth, labels.classes))
        rows[kind] = {key: round(float(np.mean([run[key] for run in runs])), 4) for key in runs[0]}
        print(name, kind, rows[kind], flush=True)
    chance = [np.tile(np.concatenate(truth).mean(0), (len(t), 1)) for t in truth]
    rows["chance"] = measured(chance, truth, labels.classes)
    return {"background": round(float(np.concatenate(truth)[:, 0].mean()), 4), "videos": len(ids), "kinds": rows}


def on_thumos(published: Path) -> dict:
    """Oracles and guesses on the test videos' labels."""
    generator = Generator(rgb=SMALL.rgb, flow=SMALL.flow)
    videos, trained = make_videos(published, generator), read_targets(published)["training"]
    oracle, truth = Oracle(generator, trained), [video.targets for video in videos.testing]
    evidence = [generator.evidence(video) for video in videos.testing]
    rows = {name: measured(oracle.scores(evidence, n), truth, THUMOS_CLASSES) for name, n in ORACLES.items()}
    seen = list(trained.values())
    for name, guess in (("chance", metrics.chance), ("time prior", metrics.time_prior)):
        rows[name] = measured([guess(seen, len(t)) for t in truth], truth, THUMOS_CLASSES)
    return {"background": round(float(np.concatenate(truth)[:, 0].mean()), 4), "videos": len(truth), "kinds": rows}


def main() -> None:
    """Score everything both ways and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("data", type=Path, help="folder with ut_interaction/, urfall/ and thumos14/")
    parser.add_argument(
        "--work", type=Path, required=True, help="folder with the features of both sets, and for scores"
    )
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("protocols.json"))
    options = parser.parse_args()
    record: dict = {"thumos14": on_thumos(options.data / "thumos14")}
    print(record["thumos14"], flush=True)
    record |= {name: on_videos(options.data, options.work, name, options.seeds) for name in SETS}
    write_json(options.output, record | {"preset": PRESET, "seeds": options.seeds, **about_machine()})


if __name__ == "__main__":
    main()
