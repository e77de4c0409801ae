"""What systemd is told of a service that it supervises, by the protocol of sd_notify(3)."""

import os
import socket
from contextlib import suppress


class Supervisor:
    """The socket that NOTIFY_SOCKET names; nothing is told where it names none."""

    def __init__(self) -> None:
        self._address = os.environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):  # of the abstract namespace
            self._address = "\0" + self._address[1:]

    def tell(self, state: str) -> None:
        """Tell it a state, such as READY=1; one that does not listen is no error."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.sendto(state.encode(), self._address)
