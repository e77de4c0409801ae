"""`lstr learn` from labelled videos to a model file, resumption, and training from an earlier model file."""

import json
import shutil
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import LabelsError, OutputError
from lstr.extractors.networks import runtime
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.manifest import published_as
from lstr.extractors.networks.network import MOVENET
from lstr.extractors.networks.weights_folder import open_weights
from lstr.metrics.actions import measure_events
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.evaluation.chosen_thresholds import SINGLE_RECORDING
from lstr.pipelines.evaluation.scoring import detect_events, means_of
from lstr.pipelines.evaluation.thresholds import Scored, choose_without_each
from lstr.pipelines.features.dataset import read_split
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.plan import STEP_NAMES, StepProgress, Workspace
from lstr.pipelines.learning.preparation import IMAGE_SETTINGS, Learning, choose_features, plan
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import Failed, Notice, result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes
from lstr.pipelines.training.finetune import FinetuneOptions, finetune
from lstr.pipelines.training.recogniser import settle
from tests.support.learning import SMALL, change_labels, name_validation, options, run, use_all_for_training


@pytest.fixture(scope="module")
def own(few_videos, tmp_path_factory):
    """Options of a training in two folds, with a video held out by the labels."""
    recipe = {"based_on": "fast", "rgb": None, "flow": {"network": "efficientnet-lite0"}, "flow_algorithm": "dis"}
    (few_videos / "lite.json").write_text(json.dumps(recipe))
    output = tmp_path_factory.mktemp("trained") / "scenes.lstr"
    return options(few_videos, output, algorithm=None, recipe=str(few_videos / "lite.json"), folds=2)


@pytest.fixture(scope="module")
def with_networks(own):
    """That training, which has trained its networks: the job and its events."""
    with closing(learn(own)) as job:
        yield job, run_until("compute features", job, done=0)


@pytest.fixture(scope="module")
def with_features(with_networks):
    job, events = with_networks
    with pytest.MonkeyPatch.context() as patch:  # torch needs no seconds to convert three networks
        patch.setattr(runtime, "is_installed", lambda name: name == "torch")
        return job, events + run_until("train the model", job, done=0)


@pytest.fixture(scope="module")
def trained(with_features) -> tuple[list, Learnt]:
    events = [*with_features[1], *with_features[0]]
    return events, events[-1].result


def find_event(events, kind):
    return next(event for event in events if isinstance(event, kind))


def run_until(step: str, job, done: int = 1) -> list:
    """Return the events of a training up to progress of a step."""
    events: list = []
    for event in job:
        events.append(event)
        if isinstance(event, StepProgress) and STEP_NAMES[event.key].startswith(step) and event.done >= done:
            break
    return events


@pytest.mark.long
def test_each_fold_has_its_network(own, with_networks):
    weights = Workspace(own.output).weights
    assert sorted(open_weights(weights).folds.values()) == [1, 2] and len([*weights.rglob("*.pth")]) == 3


@pytest.mark.long
def test_models_see_features_of_networks_without_the_fold(own, with_features):
    assert {path.name for path in Workspace(own.output).path.glob("seen/*")} == {"all", "without_1", "without_2"}


@pytest.mark.long
def test_the_model_file_suffices_for_detection(few_videos, trained, tmp_path):
    events, result = trained
    progress = [event for event in events if isinstance(event, StepProgress)]
    assert list(dict.fromkeys(event.key for event in progress)) == [*find_event(events, Learning).plan.steps]
    seconds_left = [event.left for event in progress]
    assert seconds_left[0] == max(seconds_left) and seconds_left[-1] == min(seconds_left)
    model = open_model(result.model)
    assert model.about["metrics"]["events"]["together"]["labels"] > 0
    assert set(model.about["videos"].values()) == {"training", "testing"}
    assert result.report.is_file() and "5 s" in result.lines()[-1]
    copy = shutil.copy(result.model, tmp_path / "copy.lstr")
    source = few_videos / "videos" / f"{min(model.about['videos'])}.mp4"
    detected = result_of(detect_sources([source], DetectOptions(copy, networks=NetworkOptions(device="cpu"))))
    assert detected.timelines[source.stem]["decided"] == 20


@pytest.mark.long
def test_a_second_run_has_nothing_to_do(own, trained, tmp_path):
    content = trained[1].model.read_bytes()
    events, result = run(own)
    assert not [event for event in events if isinstance(event, StepProgress | Learning)]
    assert result.about == trained[1].about and trained[1].model.read_bytes() == content
    model = shutil.copy(trained[1].model, tmp_path / "m.lstr")
    with pytest.raises(OutputError):  # the output is the file of the initial networks
        list(plan(replace(own, output=tmp_path / "m.lstr", init=str(model), recipe=None)))


@pytest.mark.long
def test_training_starts_over_with_changed_labels(few_videos, own, trained, tmp_path):
    def shorten(database):
        entry = next(entry for entry in database.values() if entry["subset"] == "training")
        entry["annotations"][0]["segment"][1] -= 0.5

    shutil.copytree(trained[1].model.parent / "scenes.learn", tmp_path / "m.learn")
    chosen = replace(own, output=tmp_path / "m.lstr", labels=change_labels(few_videos, tmp_path, shorten))
    with closing(learn(chosen)) as job:
        assert find_event(run_until("train the flow", job), Notice)
    assert not (tmp_path / "m.learn" / "models").exists()


@pytest.mark.slow
def test_training_resumes_with_another_time_limit(videos, tmp_path):
    """Once networks are trained; a finished model is trained with a new plan."""
    chosen = options(videos, tmp_path / "m.lstr", seconds=600.0)

    def start(step, seconds):
        with closing(learn(replace(chosen, seconds=seconds))) as job:
            learning = find_event(run_until(step, job), Learning)
        return learning, {path: path.stat().st_mtime_ns for path in (tmp_path / "m.learn" / "weights").glob("*.pth")}

    first, weights = start("compute features", 600.0)
    second, weights_of_second = start("train the model", 900.0)
    assert second.is_resumed and second.plan == replace(first.plan, budget=900.0)
    assert weights == weights_of_second != {}
    run(replace(chosen, seconds=900.0))
    assert not start("compute frames", 300.0)[0].is_resumed


@pytest.mark.slow
def test_training_from_an_earlier_model_file(few_videos, own, trained, tmp_path):
    """With other videos and a new class; videos of the earlier training cannot be held out."""
    render_scenes(tmp_path, SceneConfig(n_videos=3, n_testing=1, seconds=5.0, width=96, height=64, seed=5))
    labels = json.loads((tmp_path / "labels.json").read_text())
    labels["classes"].append("bow")
    entries = {f"new_{name}": entry for name, entry in labels["database"].items()}
    for name, entry in entries.items():
        entry["annotations"].append({"label": "bow", "segment": [0.0, 0.5]})
        (tmp_path / "videos" / f"{name.removeprefix('new_')}.mp4").rename(tmp_path / "videos" / f"{name}.mp4")
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": entries}))
    initial = trained[1].model
    like = {"init": str(initial), "recipe": own.recipe, "algorithm": None}
    _, result = run(options(tmp_path, tmp_path / "more.lstr", **like, false_alarms=2.0))
    model = open_model(result.model)
    assert "bow" in model.classes and result.about["metrics"]["thresholds_f1"] is None
    assert set(open_model(initial).about["seen"]) < set(model.about["seen"])

    shutil.copytree(few_videos / "videos", tmp_path / "videos", dirs_exist_ok=True)
    earlier = json.loads((few_videos / "labels.json").read_text())["database"]
    testing = {i: {**entry, "subset": "testing"} for i, entry in earlier.items()}
    (tmp_path / "labels.json").write_text(json.dumps({**labels, "database": {**entries, **testing}}))
    with pytest.raises(LabelsError, match="2"):
        run(options(tmp_path, tmp_path / "other.lstr", **like))


@pytest.mark.slow
def test_trained_networks_are_finetuned_at_a_third_of_the_rate_in_half_of_the_epochs(videos, tmp_path):
    features, output = ("pretrained", "both", None), tmp_path / "weights"
    chosen = options(videos, output, algorithm=None, settings={})
    shared = {name: getattr(chosen, name) for name in ("videos", "labels", "output", "cache", "device")}
    settings = {f"{stream}.epochs": "0" for stream in ("grey", "difference")}
    result_of(finetune(FinetuneOptions(**shared, recipe=features[0], settings=settings)))

    def configs_with(settings):
        features, own = choose_features(replace(chosen, init=str(output), settings=settings))
        return settle(features, own, str(output), "cpu").configs

    first, gentle = settle(features, {}, None, "cpu").configs, configs_with({})
    for stream, config in first.items():
        sizes = {name: getattr(gentle[stream], name) for name in IMAGE_SETTINGS}  # of the networks' own videos
        assert gentle[stream] == config.replace(lr=config.lr / 3, epochs=config.epochs // 2, **sizes)
    configs = configs_with({"epochs": "5", "shake": "0.1"})
    assert {s: c.epochs for s, c in configs.items()} == {s: 5 if c.epochs else 0 for s, c in first.items()}
    assert {config.shake for config in configs.values() if config.epochs} == {0.1}


@pytest.mark.slow
def test_a_single_recording_has_a_single_network(videos, tmp_path):
    """Also if it is in two parts; an unreadable video is skipped."""
    content = json.loads((videos / "labels.json").read_text())
    database, clips = {}, tmp_path / "videos"
    clips.mkdir()
    training = sorted(i for i, entry in content["database"].items() if entry["subset"] == "training")
    names = {training[0]: "one_part1", training[1]: "one_part2"}
    for video_id, entry in content["database"].items():
        name = names.get(video_id, Path(video_id).name)
        database[name] = {**entry, "subset": "training" if video_id in names else "testing"}
        (clips / f"{name}.mp4").symlink_to(videos / "videos" / f"{video_id}.mp4")
    database["bad"] = database["one_part1"]
    (clips / "bad.mp4").write_bytes(b"no video")
    (tmp_path / "labels.json").write_text(json.dumps({**content, "database": database}))
    settings = {"epochs": "1", "draws": "24"}
    chosen = options(videos, tmp_path / "x.lstr", algorithm=None, settings=settings, false_alarms=2.0)
    chosen = replace(chosen, videos=[str(clips)], labels=str(tmp_path / "labels.json"))
    with_recipe = find_event(plan(replace(chosen, recipe="motion")), Learning)
    assert set(with_recipe.plan.epochs) == {"difference", "change"}, "a named recipe is used as it is"
    events, result = run(chosen)
    assert {event.id for event in events if isinstance(event, Failed)} == {fail.id for fail in result.failed} == {"bad"}
    learning, model = find_event(events, Learning), open_model(result.model)
    assert learning.plan.recipe == learning.features[0] == "difference" and set(learning.plan.epochs) == {"difference"}
    assert model.recipe.parts["difference"].size == (105, 159), "the pixels of 112 x 149, in the shape of the videos"
    assert {rule["on"] for rule in model.about["thresholds"].values()} == {SINGLE_RECORDING.on}
    second = find_event(plan(chosen), Learning)
    assert second.is_finished and second.plan == learning.plan


@pytest.mark.slow
def test_the_model_of_the_best_validation_epoch_is_packed(videos, tmp_path):
    settings = {**SMALL, "train.epochs": "30", "train.lr": "0.01", "train.eval_every": "1", "train.patience": "1"}
    labels = change_labels(videos, tmp_path, name_validation)
    _, result = run(options(videos, tmp_path / "m.lstr", labels=labels, settings=settings, folds=0))
    folder = Workspace(result.model).models / "flow" / "all"
    best, last = (load(folder / f"{name}.pt").metrics["epoch"] for name in ("best", "checkpoint"))
    assert open_model(result.model).about["checkpoint"]["metrics"]["epoch"] == best < last


def test_a_result_without_labelled_actions_has_no_mAP():
    counts = {"labels": 0, "found": 0, "false_alarms": 0, "delay": {"p50": None}, "iou": {"0.3": {"f1": None}}}
    events, unknown = {"together": counts, "hours": 1.0, "per_class": {}}, {"mAP": None}
    metrics = {"events": events, "lstr": unknown, "time_prior": unknown}
    lines = Learnt(Path("m.lstr"), {"metrics": metrics, "split": "measured"}, None).lines()
    assert len(lines) == 2 and "F1 –, per-frame mAP –" in lines[1]


@pytest.mark.slow
def test_with_folds_each_video_is_scored_by_a_model_without_it(videos, tmp_path):
    labels = change_labels(videos, tmp_path, use_all_for_training)
    _, result = run(options(videos, tmp_path / "m.lstr", labels=labels))
    model, folder = open_model(result.model), tmp_path / "m.learn"
    about, metrics = model.about, model.about["metrics"]
    assert metrics["videos"] == 6 and metrics["folds"] == 3 and set(about["videos"].values()) == {"training"}
    assert set(about["videos"]) <= set(about["seen"]) and "time_prior" in metrics
    counts = Counter(s.label for video in read_label_file(labels).videos.values() for s in video.segments)
    assert about["data"]["subsets"] == {"training": {"videos": 6, "seconds": 30.0, "labels": counts}}
    assert model.card() == Archive(result.model).read("card.md").decode() and "day 1" not in model.card()

    folds, features = open_weights(folder / "weights").folds, open_features(folder / "features")
    by_fold = [sorted(i for i, fold in folds.items() if fold == number) for number in (1, 2, 3)]
    assert about["folds"] == by_fold and [len(ids) for ids in by_fold] == [2, 2, 2]
    split, scores = read_split(folder / "features", folder / "labels.json", "training"), {}
    for number, ids in enumerate(by_fold, 1):
        other_ids = {*folds} - {*ids}
        assert set(open_features(folder / "seen" / f"without_{number}").ids()) == other_ids
        loaded = load(folder / "models" / "flow" / f"without_{number}" / "checkpoint.pt")
        assert set(loaded.metrics["training_videos"]) == other_ids
        for video in split.videos:
            if video.id in ids:
                record = features.read_record(video.id)
                assert record["fold"] == number and record["seen"] == []
                scores[video.id] = predict(loaded.model, video.features[:]).numpy()
    rows = [scores[video.id] for video in split.videos]
    mAP = means_of(rows, [video.targets for video in split.videos], model.classes)["mAP"]
    assert metrics["lstr"]["mAP"] == pytest.approx(mAP)
    assert about["tried"] == [{"model": "flow", "mAP": pytest.approx(mAP)}]

    expected = {v.id: means_of([scores[v.id]], [v.targets], model.classes)["mAP"] for v in split.videos}
    assert {row["id"]: row["mAP"] for row in metrics["per_video"]} == pytest.approx(expected)

    # the events of each video are those of thresholds that the other videos choose
    scored = [Scored(scores[v.id], split.labels.videos[v.id].segments) for v in split.videos]
    _, rules = choose_without_each([[video] for video in scored], model.classes)
    pairs = zip(scored, rules, strict=True)
    detected = [detect_events(v.scores, model.classes, rule.by_class, v.truth) for v, rule in pairs]
    expected, together = measure_events(detected, model.classes)["together"], metrics["events"]["together"]
    assert metrics["decided_by_others"] and result.report.is_file()
    assert all(expected[name] == together[name] for name in ("labels", "found", "false_alarms"))


@pytest.mark.slow
@pytest.mark.parametrize("poses", [False, True])
def test_two_networks_and_two_averaged_models_or_three(videos, tmp_path, poses):
    """One model of both streams, one of motion, one of poses if fetched. A video without actions is in a fold."""
    idle = tmp_path / "idle"
    idle.mkdir()
    shutil.copy(min((videos / "videos").rglob("*.mp4")), idle / "nobody.mp4")
    tiny = {"size": "32,64", "epochs": "1", "draws": "16", "model.d_model": "16", "train.epochs": "1"}
    if poses:
        save_file(MOVENET.build(3).state_dict(), published_as("pose")[0].place)
    chosen = options(videos, tmp_path / "m.lstr", algorithm=None, settings=tiny, folds=2, negatives=[str(idle)])
    events, result = run(replace(chosen, recipe=None))
    assert "nobody" in open_weights(tmp_path / "m.learn" / "weights").folds
    streams = ("grey", "difference", "pose")[: 2 + poses]
    packed = {"average": streams, "pose": ("pose",)}.get(result.about["taken"], streams[:2])
    assert any("mAP in the folds" in event.text for event in events if isinstance(event, Notice)) == poses
    assert open_model(result.model).recipe.streams == packed and len(result.about["tried"]) == 2 * len(streams) - 1
    seen = tmp_path / "m.learn" / "seen"
    assert {path.name for path in seen.iterdir()} == {"all", "without_1", "without_2"}
    for folder in (tmp_path / "m.learn" / "features", *seen.iterdir()):
        assert open_features(folder).recipe.streams == streams
    assert len([*(tmp_path / "m.learn" / "weights").rglob("*.pth")]) == 3 * len(streams)
    assert {part.weights for part in open_model(result.model).recipe.parts.values()} == {"weights"}, "of this training"
    models = [load(path) for path in (tmp_path / "m.learn" / "models").glob("*/all/checkpoint.pt")]
    assert sum(loaded.config.deltas for loaded in models) == poses and len(models) == 2 + poses
