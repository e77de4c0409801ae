"""What programs learn of a service: whether it is healthy, its numbers for Prometheus, its state for systemd."""

import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from lstr.pipelines.watching.board import Board
from lstr.pipelines.watching.clips import Clips
from lstr.pipelines.watching.delivery import Delivery

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

# Answered without a token: no address, no picture and no event is in them, but the names of sources are.
PATHS = ("/healthz", "/metrics")
# For which the numbers are told again: anybody may ask for them, and all events are counted for it.
TOLD_SECONDS = 1.0
# A source that is watched, and on which nothing was decided for so long, makes the service unhealthy.
SILENT_SECONDS = 60.0
COUNTED = {
    "decided": "Chunks that were decided.",
    "dropped": "Chunks that were left out because the machine was slower than the source.",
    "unseen": "Chunks that the source never sent.",
    "reconnects": "How often the source was connected again.",
}


class Health:
    """The routes of a service's health and numbers. channels: what delivers by each channel, by its name."""

    def __init__(self, board: Board, channels: Callable[[], Mapping[str, Delivery]], clips: Clips | None):
        self._board, self._channels, self._clips = board, channels, clips
        self._told: tuple[float, bytes] = (-TOLD_SECONDS, b"")
        """When the numbers were made last, and their text."""
        self._making = threading.Lock()

    def routes(self) -> list[Route]:
        """`/healthz` and `/metrics`."""
        return [Route("/healthz", self._healthz), Route("/metrics", self._metrics)]

    def silent(self) -> dict[str, float]:
        """Seconds of silence of each watched source on which nothing was decided for too long."""
        return {name: s for name, s in self._board.silences().items() if s > SILENT_SECONDS}

    async def _healthz(self, request: Request) -> Response:
        silent = await run_in_threadpool(self.silent)
        told = {"status": "silent" if silent else "ok", "silent": {name: round(s) for name, s in silent.items()}}
        return JSONResponse(told, 503 if silent else 200)

    async def _metrics(self, request: Request) -> Response:
        try:
            from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
        except ImportError:
            return PlainTextResponse("prometheus-client is not installed: pip install 'lstr-video[watch]'\n", 501)

        def make() -> bytes:
            with self._making:
                if monotonic() - self._told[0] >= TOLD_SECONDS:
                    registry = CollectorRegistry(auto_describe=False)
                    registry.register(self)
                    self._told = monotonic(), generate_latest(registry)
                return self._told[1]

        return Response(await run_in_threadpool(make), media_type=CONTENT_TYPE_LATEST)

    def collect(self) -> Iterator["Metric"]:
        """The numbers as they are now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        states: list[dict[str, Any]] = self._board.states()
        up = GaugeMetricFamily("lstr_source_up", "Whether frames of a source come.", labels=["source"])
        lag = GaugeMetricFamily("lstr_source_lag_seconds", "Lag of decisions, its 95th percentile.", labels=["source"])
        counts = {
            name: CounterMetricFamily(f"lstr_source_{name}", text, labels=["source"]) for name, text in COUNTED.items()
        }
        for state in states:
            up.add_metric([state["name"]], state["link"] == "reading")
            if state["lag_ms"] is not None:
                lag.add_metric([state["name"]], state["lag_ms"] / 1000)
            for name, family in counts.items():
                family.add_metric([state["name"]], state[name])
        yield from (up, lag, *counts.values())
        waiting = GaugeMetricFamily("lstr_notices_waiting", "Notices that have not arrived.", labels=["channel"])
        failed = CounterMetricFamily("lstr_notices_failed", "Tries to tell that failed.", labels=["channel"])
        unheard = self._board.history.waiting()
        for channel, delivery in self._channels().items():
            waiting.add_metric([channel], unheard.get(channel, 0))
            failed.add_metric([channel], delivery.failed)
        yield from (waiting, failed)
        events = GaugeMetricFamily("lstr_events", "Events that are kept.", labels=["source", "action"])
        for (source, action), count in self._board.history.counts().items():
            events.add_metric([source, action], count)
        yield events
        if self._clips:
            yield GaugeMetricFamily("lstr_clips_bytes", "Bytes of the clips on the disk.", value=self._clips.size)


def tell_supervisor(state: str) -> None:
    """Tell systemd a state such as READY=1, by the protocol of sd_notify(3), if NOTIFY_SOCKET names its socket."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address.startswith("@"):  # of the abstract namespace
        address = "\0" + address[1:]
    if address:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(state.encode(), address)
