"""Train, evaluate and stream each kind of model through `import lstr`, for benchmarks/equality.py.

    python -P benchmarks/equality_kinds.py FEATURES LABELS OUTPUT

Each of PRESETS is trained for two steps. OUTPUT gets PRESET/checkpoint.pt, evaluation.json and stream.npy (chunks,
streams, classes). The exit code is 1 if one of them failed.
"""

import json
import sys
import warnings
from pathlib import Path

import numpy as np

import lstr

SIZE = {"model.d_model": 32, "model.n_heads": 4, "model.d_feedforward": 32}
STEPS = {"train.seed": 5, "train.epochs": 1, "train.max_steps": 2, "train.batch_size": 4}
LONG = {"model.long_length": 32, "model.work_length": 8}
QUERIES = {"model.n0": 4, "model.n1": 4}
PRESETS: dict[str, dict[str, object]] = {
    "thumos14": {**LONG, **QUERIES, "model.gru": "true", "model.anticipation": 2},
    "thumos14-published": {**LONG, **QUERIES, "model.positions": "distance"},
    "small": {},
    "trn-thumos14": {"model.work_length": 8, "model.d_token": 16},
    "miniroad-thumos14": {"model.work_length": 16},
    "testra-thumos14": {**LONG, **QUERIES},
    "testra-laplace-thumos14": {**LONG, **QUERIES, "model.anticipation": 2},
    "gatehub-thumos14": {"model.long_length": 16, "model.n0": 4},
    "oadtr-thumos14": {"model.work_length": 8},
    "colar-thumos14": {"model.work_length": 8, "model.exemplars": 3},
    "cmert-thumos14": {**LONG, **QUERIES, "model.future": 12, "model.n_generated": 4},
    "mat-thumos14": {**LONG, **QUERIES, "model.future": 12, "model.n_generated": 4, "model.groups": 2},
    "idn-thumos14": {"model.work_length": 8},
    "fats-thumos14": {"model.work_length": 8, "model.generated": 3, "model.runs": 2},
    "woad-thumos14": {"model.work_length": 16, "model.unroll": 8},
    "woad-video-thumos14": {"model.work_length": 16, "model.unroll": 8},
    "efc-thumos14": {"model.work_length": 8},
    "ed-thumos14": {"model.work_length": 8},
    "red-thumos14": {"model.work_length": 8},
    "ttm-thumos14": {"model.work_length": 8},
    "lap-like-thumos14": {"model.work_length": 8},
    "tfn-like-thumos14": {"model.work_length": 8},
    "conv-deconv-thumos14": {"model.work_length": 8},
    "lstr-small": {"model.kind": "lfb", **LONG},
}
"""What is set otherwise than by each preset"""
STREAMS = 2  # that step together


def stream(checkpoint: Path, features: Path) -> np.ndarray:
    """Return scores (chunks, streams, classes) of the first videos, computed chunk by chunk."""
    model = lstr.load(checkpoint).model
    folders = (features / "rgb_kinetics_resnet50", features / "flow_kinetics_bninception")
    videos = [path.name for path in sorted(folders[0].iterdir())[:STREAMS]]
    rgb, flow = (np.stack([np.load(folder / video) for video in videos], 1) for folder in folders)
    state = lstr.create(model, n_streams=STREAMS)
    return np.stack([np.asarray(lstr.step(model, state, a, b)) for a, b in zip(rgb, flow, strict=True)])


def run(preset: str, features: Path, labels: Path, output: Path) -> None:
    """Train, evaluate and stream the model of a preset."""
    settings = {**SIZE, **STEPS, **PRESETS[preset]}
    trained = lstr.train(features, labels, output / preset, preset=preset, settings=settings, device="cpu")
    result = lstr.evaluate(trained.checkpoint, features, labels, subset="testing", resamples=0, device="cpu")
    (output / preset / "evaluation.json").write_text(json.dumps(result.document, default=str))
    np.save(output / preset / "stream.npy", stream(trained.checkpoint, features))


def main() -> int:
    """Run all presets; return 1 if one failed."""
    warnings.simplefilter("ignore")
    features, labels, output = map(Path, sys.argv[1:])
    failed = 0
    for preset in PRESETS:
        try:
            run(preset, features, labels, output)
        except Exception as error:  # one kind that fails leaves the others to be compared
            failed += 1
            print(f"{preset}: {error!r}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
