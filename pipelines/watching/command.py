"""A command: a program is started for each notice, with the event as JSON on its standard input."""

import os
import signal
import subprocess
from contextlib import suppress
from datetime import datetime
from shutil import which
from tempfile import TemporaryFile
from typing import Annotated

from msgspec import Meta

from lstr.errors import ConfigError, DeliveryError
from lstr.pipelines.watching.config import Table
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import Notifier, message_bytes

TIMEOUT_S = 30.0

Word = Annotated[str, Meta(min_length=1, pattern=r"^[^\x00]*$")]


class CommandConfig(Table, frozen=True):
    """A program."""

    command: Annotated[tuple[Word, ...], Meta(min_length=1)]
    """The program and its arguments."""


class CommandNotifier(Notifier):
    """Starts a program, never by a shell.

    A notice has arrived when the program ends with exit code 0; after TIMEOUT_S it is killed with its children. Its
    output is thrown away, because it may contain secrets.
    """

    Config = CommandConfig

    def __init__(self, name: str, config: CommandConfig):
        super().__init__(name, config)
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def check(self) -> None:
        """Raise ConfigError if the program does not exist."""
        if which(self.config.command[0]) is None:
            raise ConfigError(f"there is no program {self.config.command[0]}.")

    def send(self, notice: Notice, now: datetime) -> None:
        """Start the program and wait for it."""
        try:
            # a file, not a pipe: if this process is killed meanwhile, the program has all of it
            with TemporaryFile() as body:
                body.write(message_bytes(notice, now))
                body.seek(0)
                process = subprocess.Popen(
                    self.config.command,
                    stdin=body,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
        except OSError as error:
            raise DeliveryError(f"its program cannot be started ({os.strerror(error.errno or 0)}).") from None
        self._process = process
        try:
            if self._closing:
                raise DeliveryError("the program is ending.")
            process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise DeliveryError(f"its program ran for more than {TIMEOUT_S:g} s and was killed.") from None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()
            self._process = None
        if process.returncode:
            raise DeliveryError(f"its program ended with exit code {process.returncode}.")

    def abort(self) -> None:
        """Kill the program."""
        self._closing = True
        if process := self._process:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
