"""Connections of a server: a bounded number, and each request has to come within seconds."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

MOST = 256
"""Open at once; each is a file of this process, which has others to open."""
REQUEST_SECONDS = 20.0
"""Within which all of a request has come, from the connection or from its first byte on."""
COMING = (h11.IDLE, h11.SEND_BODY)


class Connection(H11Protocol):
    """One of them. It is closed where its request does not come to an end, and sooner where there are too many."""

    _limit: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()
        if len(self.connections) > MOST:  # the one that has asked nothing for longest makes room
            waiting = [one for one in self.connections if isinstance(one, Connection) and one._limit]
            min(waiting, key=lambda one: one._limit.when() if one._limit else 0.0)._cut_off()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        """What is asked is there, or has a limit. While nothing is asked, uvicorn closes what was used before."""
        if self.conn.their_state not in COMING:
            self._forget()
        elif self._limit is None and not self.transport.is_closing():
            self._limit = self.loop.call_later(REQUEST_SECONDS, self._cut_off)

    def _cut_off(self) -> None:
        self._forget()
        self.transport.abort()

    def _forget(self) -> None:
        if self._limit:
            self._limit.cancel()
            self._limit = None
