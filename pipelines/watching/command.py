"""A command: a program is started for each notice, and gets it as JSON on its standard input."""

import os
import signal
import subprocess
from contextlib import suppress
from datetime import datetime
from tempfile import TemporaryFile

from lstr.errors import DeliveryError
from lstr.pipelines.watching.channel import Channel, message_bytes
from lstr.pipelines.watching.config import CommandConfig
from lstr.pipelines.watching.history import Notice

# For which a command may run.
SECONDS = 30.0


class Command(Channel):
    """Starts a program with its arguments, never by a shell. Raises ConfigError.

    A notice has arrived when the program ends with exit code 0; after SECONDS it is killed, with all that it started.
    What it prints is thrown away and is in no message: it may hold what the program knows of secrets.
    """

    def __init__(self, name: str, config: CommandConfig):
        super().__init__(name)
        self._command = config.command
        self._process: subprocess.Popen[bytes] | None = None
        self._closing = False

    def tell(self, notice: Notice, now: datetime) -> None:
        try:
            # a file and no pipe: where this process is killed meanwhile, the program has all of it
            with TemporaryFile() as body:
                body.write(message_bytes(notice, now))
                body.seek(0)
                process = subprocess.Popen(
                    self._command,
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
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            raise DeliveryError(f"its program ran for more than {SECONDS:g} s and was killed.") from None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()
            self._process = None
        if process.returncode > 0:
            raise DeliveryError(f"its program ended with exit code {process.returncode}.")
        if process.returncode < 0:
            raise DeliveryError(f"its program was ended by signal {-process.returncode}.")

    def abort(self) -> None:
        self._closing = True
        if process := self._process:
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
