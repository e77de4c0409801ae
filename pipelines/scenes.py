"""Render a small labelled data set of MP4 files: an animated figure that performs actions, with exact labels."""

from __future__ import annotations

import colorsys
import hashlib
import json
import math
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

import av
import cv2
import numpy as np

from lstr.extractors.flow.workers import default_workers
from lstr.files.atomic import replacing, sweep
from lstr.files.content import write_json
from lstr.labels.segment import Segment
from lstr.pipelines.progress import Progress

# Length of a cycle in seconds. For a walk it is in body heights of distance, because with a cycle in seconds the feet
# would slide.
PERIODS = {"wave": 0.55, "jump": 0.85, "walk": 0.78, "squat": 1.4, "punch": 0.95}
ACTIONS = tuple(PERIODS)
CLASSES = ("Background", *ACTIONS)
FPS = 30
ACTION_SECONDS = (1.5, 2.5)
PAUSE_SECONDS = (1.0, 1.8)
LEAD_SECONDS, TAIL_SECONDS = (0.5, 1.8), 0.5
FADE_SECONDS, TURN_SECONDS = 0.25, 0.4
SIDE_YAW = math.radians(78)

# Part of each file's mark: increase it when the drawing changes, so that old files are rendered again.
DRAWING = 1

# Lengths in body heights.
TORSO, NECK, HEAD, SHOULDER, HIP, ARM, LEG = 0.29, 0.07, 0.075, 0.115, 0.06, 0.19, 0.24
SIDES = np.array([-1, 1, -1, 1])
HALVES = np.array([ARM, ARM, LEG, LEG])[:, None, None]
REST, STAND = (4, 10, 10, 6), (2, 5, -2, 4)


@dataclass(frozen=True)
class SceneConfig:
    """Settings of the rendered data set: lengths in seconds, even sizes in pixels."""

    n_videos: int = 10
    n_testing: int = 3
    seconds: float = 9.0
    width: int = 160
    height: int = 120
    seed: int = 0

    @property
    def n_frames(self) -> int:
        return round(self.seconds * FPS)

    @property
    def duration(self) -> float:
        return self.n_frames / FPS

    def mark(self) -> str:
        """Identifier that is written into each file; files with equal marks and ids have equal pixels."""
        text = json.dumps({"drawing": DRAWING, "fps": FPS, **vars(self)}, sort_keys=True)
        return "lstr scenes " + hashlib.sha256(text.encode()).hexdigest()[:16]


def schedule(config: SceneConfig = SceneConfig()) -> dict[str, tuple[str, list[Segment]]]:
    """Draw the actions of each video at random: id -> (subset, segments).

    Actions are dealt from shuffled decks of the five actions, separately for each subset, so that a subset with 5 n
    actions contains every class n times. A video of 9 s has two or three actions.
    """
    rng = np.random.default_rng(config.seed)
    drawn: dict[str, tuple[str, list[Segment]]] = {}
    decks = {"training": _deal(rng), "testing": _deal(rng)}
    for index in range(config.n_videos):
        subset = "training" if index < config.n_videos - config.n_testing else "testing"
        segments: list[Segment] = []
        start = rng.uniform(*LEAD_SECONDS)
        while (room := config.duration - TAIL_SECONDS - start) >= ACTION_SECONDS[0]:
            end = start + rng.uniform(ACTION_SECONDS[0], min(ACTION_SECONDS[1], room))
            segments.append(Segment(round(start, 3), round(end, 3), next(decks[subset])))
            start = end + rng.uniform(*PAUSE_SECONDS)
        drawn[f"scene_{index:02d}"] = (subset, segments)
    return drawn


def render_scenes(folder: Path, config: SceneConfig = SceneConfig()) -> Path:
    """Run `rendering` to its end; return the path of `folder/labels.json`."""
    list(rendering(folder, config))
    return Path(folder) / "labels.json"


def rendering(folder: Path, config: SceneConfig = SceneConfig()) -> Iterator[Progress]:
    """Render `folder/videos/<id>.mp4`, then write `folder/labels.json` (ActivityNet JSON); yield Progress by video.

    Existing files of the same config are kept.
    """
    folder = Path(folder)
    videos = folder / "videos"
    sweep(folder)
    drawn, left = schedule(config), Event()

    def render(index: int, name: str) -> None:
        path, mark = videos / f"{name}.mp4", None
        with suppress(av.FFmpegError, OSError), av.open(str(path)) as container:
            mark = container.metadata.get("comment")
        if mark == config.mark():
            return
        with (
            replacing(path) as part,
            av.open(str(part), "w", format="mp4", options={"movflags": "faststart"}) as container,
        ):
            container.metadata["comment"] = config.mark()
            stream = container.add_stream("libx264", rate=FPS)
            stream.width, stream.height, stream.pix_fmt = config.width, config.height, "yuv420p"
            stream.options = {"crf": "23", "preset": "veryfast"}
            # x264's output depends on the number of threads; one thread gives the same bytes on any machine.
            stream.codec_context.thread_count = 1
            for image in _frames(config, index, drawn[name][1]):
                if left.is_set():
                    raise CancelledError
                container.mux(stream.encode(av.VideoFrame.from_ndarray(image, format="bgr24")))
            container.mux(stream.encode())

    with ThreadPoolExecutor(default_workers()) as pool:
        try:
            for done, _ in enumerate(pool.map(render, range(len(drawn)), drawn), start=1):
                yield Progress("render", done, len(drawn))
        finally:
            left.set()
    database = {}
    for name, (subset, segments) in drawn.items():
        annotations = [{"label": s.label, "segment": [s.start, s.end]} for s in segments]
        database[name] = {"subset": subset, "duration": config.duration, "annotations": annotations}
    write_json(folder / "labels.json", {"version": "lstr scenes 1", "classes": CLASSES, "database": database})


def _deal(rng: np.random.Generator) -> Iterator[str]:
    last = ""
    while True:
        deck = rng.permutation(ACTIONS).tolist()
        if deck[0] == last:
            # Two consecutive segments of one action would have no visible boundary to learn from.
            deck = deck[1:] + deck[:1]
        last = deck[-1]
        yield from deck


def _frames(config: SceneConfig, index: int, segments: list[Segment]) -> Iterator[np.ndarray]:
    rng = np.random.default_rng([config.seed, index])
    actor, width, height = Actor(rng, config, segments), config.width, config.height
    # a textured wall, floor and a few flat objects, of medium brightness and pale: (H, W, 3) BGR
    scenery = np.empty((height, width, 3), np.float32)
    horizon = int(height * rng.uniform(0.66, 0.74))
    scenery[:horizon] = rng.uniform(140, 200) + rng.uniform(-20, 20, 3)
    scenery[horizon:] = rng.uniform(95, 140) + rng.uniform(-15, 15, 3)
    for _ in range(rng.integers(2, 5)):
        x, y = int(rng.uniform(0, width * 0.9)), int(rng.uniform(0, horizon * 0.6))
        corner = (x + int(rng.uniform(0.08, 0.25) * width), y + int(rng.uniform(0.1, 0.3) * height))
        cv2.rectangle(scenery, (x, y), corner, (rng.uniform(120, 215) + rng.uniform(-25, 25, 3)).tolist(), -1)
    # Two grain sizes, because optical flow needs texture at more than one pyramid level.
    for cell, strength in ((10, 9.0), (3, 6.0)):
        grain = rng.standard_normal((height // cell + 1, width // cell + 1)).astype(np.float32)
        scenery += strength * cv2.resize(grain, (width, height), interpolation=cv2.INTER_CUBIC)[..., None]
    stage = np.clip(scenery, 0, 255).astype(np.uint8)
    # Faint on purpose: stronger noise and light would keep TV-L1 from stopping early on still frames, and slow the
    # demo.
    noise, lamp, lamp_hertz = rng.uniform(0.3, 0.8), rng.uniform(0.004, 0.01), rng.uniform(0.05, 0.15)
    for k in range(config.n_frames):
        seconds = k / FPS
        image = actor.draw(stage.copy(), seconds).astype(np.float32)
        image *= 1 + lamp * math.sin(2 * math.pi * lamp_hertz * seconds)
        image += noise * rng.standard_normal(stage.shape, dtype=np.float32)
        yield np.clip(image + 0.5, 0, 255).astype(np.uint8)


class Actor:
    """An animated figure: its appearance, its position over time and its pose at any time.

    A pose is an array (18,), in degrees: the lean of the trunk; then for left arm, right arm, left leg and right leg
    the pitch (0 hangs down, 90 points forward) and spread (sideways, away from the body) of the upper and of the lower
    half; last the lift above the floor, in body heights.
    """

    def __init__(self, rng: np.random.Generator, config: SceneConfig, segments: list[Segment]) -> None:
        self.segments = segments
        self.size, self.floor = config.height * rng.uniform((0.57, 0.92), (0.66, 0.96))
        self.hand = int(rng.integers(2))
        self.sway = rng.uniform(0, 2 * math.pi, 2)
        self.tempo = [rng.uniform(0.88, 1.12) for _ in segments]
        self.skin = np.array([95, 130, 185]) * rng.uniform(0.5, 0.85)
        shirt = (rng.random(), rng.uniform(0.6, 0.9), rng.uniform(110, 190))
        trousers = (rng.random(), rng.uniform(0.25, 0.6), rng.uniform(35, 75))
        self.shirt, self.trousers = (np.array(colorsys.hsv_to_rgb(*hsv)) for hsv in (shirt, trousers))

        margin = 0.42 * self.size
        place = rng.uniform(margin, config.width - margin)
        rest = math.radians(rng.uniform(40, 55))
        yaw = rest * rng.choice((-1, 1))
        self.home, self.walks, self.yaw_keys = place, [], [(0.0, yaw)]
        for start, end in ((s.start, s.end) for s in segments if s.label == "walk"):
            side = 1 if place < config.width / 2 else -1
            far = config.width - margin if side > 0 else margin
            # A long way in a short time would look like running, so the speed is limited.
            target = place + side * min(abs(far - place), 0.65 * self.size * (end - start))
            self.yaw_keys += [(start - TURN_SECONDS, yaw), (start, side * SIDE_YAW)]
            self.yaw_keys += [(end, side * SIDE_YAW), (end + TURN_SECONDS, side * rest)]
            yaw = side * rest
            self.walks.append((start, end, place, target))
            place = target

    def _place(self, seconds: float) -> float:
        place = self.home
        for start, end, x0, x1 in self.walks:
            place = x0 + (x1 - x0) * _smooth((seconds - start) / (end - start)) if seconds > start else place
        return place

    def pose(self, seconds: float) -> np.ndarray:
        """Return the pose (18,) at a time in seconds."""
        breath = math.sin(2 * math.pi * 0.3 * seconds + self.sway[0])
        drift = math.sin(2 * math.pi * 0.17 * seconds + self.sway[1])
        arm = (REST[0] + 3 * breath, REST[1], REST[2] + 3 * breath, REST[3])
        idle = _join(1 + 1.5 * drift, arm, arm, STAND, STAND)
        for segment, tempo in zip(self.segments, self.tempo, strict=True):
            if not segment.start <= seconds < segment.end:
                continue
            t, length = seconds - segment.start, segment.end - segment.start
            period = PERIODS[segment.label]
            # An integer number of cycles, so that the movement ends in its first pose.
            cycles = t / length * max(1, round(length * tempo / period))
            if segment.label == "walk":
                cycles = tempo / period * abs(self._place(seconds) - self._place(segment.start)) / self.size
            act = pose_of(segment.label, cycles % 1)
            if self.hand == 0:
                act = act[[0, 5, 6, 7, 8, 1, 2, 3, 4, 13, 14, 15, 16, 9, 10, 11, 12, 17]]
            return idle + _smooth(min(t, length - t) / FADE_SECONDS) * (act - idle)
        return idle

    def draw(self, image: np.ndarray, seconds: float) -> np.ndarray:
        """Draw the figure on an image (H, W, 3) BGR uint8, in place."""
        pose = self.pose(seconds)
        angle = np.radians(pose[:17])
        times, yaws = np.array(self.yaw_keys, dtype=float).T
        yaw = float(np.interp(seconds, times, yaws))
        up = np.array([math.sin(angle[0]), 0.0, math.cos(angle[0])])
        pitch, spread = np.moveaxis(angle[1:].reshape(4, 2, 2), 2, 0)  # (4 limbs, 2 halves) each
        flat = np.cos(spread)
        along = (np.sin(pitch) * flat, SIDES[:, None] * np.sin(spread), -np.cos(pitch) * flat)
        roots = SIDES[:, None] * np.array([[0, SHOULDER, 0]] * 2 + [[0, HIP, 0]] * 2)
        roots[:2] += TORSO * up
        joints = np.concatenate([roots[:, None], HALVES * np.stack(along, axis=-1)], axis=1).cumsum(axis=1)
        # The lower foot is on the floor, and the middle of both feet stays in place.
        feet = joints[2:, 2]
        origin = np.array([*feet[:, :2].mean(axis=0), feet[:, 2].min() - pose[17]])
        turn = np.array([[math.sin(yaw), math.cos(yaw), 0], [0, 0, -1], [math.cos(yaw), -math.sin(yaw), 0]])
        corner = np.array([self._place(seconds), self.floor, 0])

        def project(points: np.ndarray) -> np.ndarray:
            """Project body points (..., 3) forward, right, up to (..., 3) x, y in pixels and nearness."""
            return corner + self.size * (points - origin) @ turn.T

        arm = ((0.072, self.shirt * 0.85), (0.064, self.skin))
        leg = ((0.10, self.trousers), (0.085, self.trousers * 1.3))
        parts = []
        for (a, b, c), looks in zip(project(joints), (arm, arm, leg, leg), strict=True):
            parts.append((a[2] + b[2] + c[2], [(a, b, *looks[0]), (b, c, *looks[1])]))
        trunk = project(np.array([up * high + [0, wide, 0] for high in (0.03, 0.27) for wide in (-0.07, 0.07)]))
        strokes = [(trunk[a], trunk[b], 0.12, self.shirt) for a, b in ((0, 2), (1, 3), (0, 3))]
        parts.append((1.5 * (trunk[0][2] + trunk[3][2]), strokes))
        neck, head = project(np.array([TORSO * up, (TORSO + NECK + HEAD) * up]))
        parts.append((3 * head[2], [(neck, head, 0.07, self.skin), (head, head, 2 * HEAD, self.skin)]))
        for _, strokes in sorted(parts, key=lambda part: part[0]):
            for a, b, wide, colour in strokes:
                # Coordinates in sixteenths of a pixel (shift 4): whole pixels would make slow movements jerky.
                start, end = ([round(v * 16) for v in p[:2].tolist()] for p in (a, b))
                cv2.line(image, start, end, colour.tolist(), max(1, round(wide * self.size)), cv2.LINE_AA, 4)
        return image


def _smooth(u: float) -> float:
    u = min(max(u, 0.0), 1.0)
    return u * u * (3 - 2 * u)


def _join(lean: float, *limbs: tuple[float, float, float, float], lift: float = 0.0) -> np.ndarray:
    return np.array([lean, *(value for limb in limbs for value in limb), lift])


def pose_of(action: str, phase: float) -> np.ndarray:
    """Return the pose (18,) of an action at a phase (0 to 1) of its cycle."""
    turn = 2 * math.pi * phase
    if action == "wave":
        swing = math.sin(turn)
        return _join(0, REST, (165, 35 + 14 * swing, 175, 8 + 48 * swing), STAND, STAND)
    if action == "jump":
        air = min(max((phase - 0.3) / 0.45, 0.0), 1.0)
        bend = math.sin(math.pi * phase / 0.3) if phase < 0.3 else 0.0
        if phase > 0.75:
            bend = 0.6 * math.sin(math.pi * (phase - 0.75) / 0.25)
        fly = math.sin(math.pi * air)
        arm = (-20 * bend, 12 + 115 * fly, -10 * bend, 8 + 130 * fly)
        leg = (45 * bend, 5 + 14 * fly, -35 * bend, 4 + 14 * fly)
        return _join(14 * bend, arm, arm, leg, leg, lift=0.24 * 4 * air * (1 - air))
    if action == "walk":
        arms, legs = [], []
        for shift in (0.0, math.pi):
            swing, back = math.sin(turn + shift), math.cos(turn + shift)
            arms.append((-30 * swing, 6, 18 - 34 * swing, 3))
            legs.append((28 * swing, 2, 28 * swing - 45 * max(0.0, back), 2))
        return _join(5, *arms, *legs)
    if action == "squat":
        depth = (1 - math.cos(turn)) / 2
        arm, leg = (5 + 83 * depth, 8, 8 + 84 * depth, 4), (88 * depth, 6 + 10 * depth, -42 * depth, 4)
        return _join(34 * depth, arm, arm, leg, leg)
    # A punch goes out in an eighth of a second and back in a quarter: the fastest movement of the data set.
    reach = _smooth(2 * phase % 1 / 0.28) * _smooth((1 - 2 * phase % 1) / 0.5)
    hit, guard = (18 + 74 * reach, 8 - 8 * reach, 140 - 50 * reach, -14 + 6 * reach), (18.0, 8.0, 140.0, -14.0)
    return _join(6 + 12 * reach, *((hit, guard) if phase < 0.5 else (guard, hit)), (30, 5, 8, 4), (-8, 5, -32, 4))
