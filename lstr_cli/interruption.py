"""Ctrl-C, SIGTERM and SIGHUP: the first ends the command in order, a second one at once.

The first raises KeyboardInterrupt in the main thread, so that everything is closed and finished work is written. A
thread receives them too, because the main thread may be in a call that returns late or never. A signal that is ignored
from the start stays ignored, such as SIGHUP under `nohup`.
"""

import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from signal import SIGHUP, SIGINT, SIGTERM
from time import monotonic

SENTENCES = {SIGINT: "Interrupted.", SIGTERM: "Terminated.", SIGHUP: "The terminal was closed."}
RERUN = "run the same command again (train, finetune: with --resume; detect starts over)."
HINT = f"everything finished so far is kept; {RERUN}"
AT_ONCE = f"files that were being written are not saved; {RERUN}"
SAME_REQUEST_S = 1.0  # seconds within which several signals are one request: `timeout` and closed terminals send two
RESPONSE_TIMEOUT_S = 4.0  # seconds until the main thread has to have heard
POLL_S = 1.0  # seconds between two looks whether the main thread winds down
EXIT_TIMEOUT_S = 2.0  # seconds until threads have to have ended when the command has
EXIT_CODE_BASE = 128  # shells add the number of the signal to it: 130, 143, 129
SHOW_CURSOR = "\x1b[?25h"

_listening: "Interruptions | None" = None


class Interruptions:
    """Handles signals while a command runs; a context manager. Outside the main thread it does nothing.

    `heard` is the signal that ends the command.
    """

    def __init__(self):
        self.heard: signal.Signals | None = None
        self._before: dict[signal.Signals, Callable[..., object] | int | None] = {}
        self._terminals: list[int] = []
        self._reached = threading.Event()
        self._main = threading.main_thread().ident or 0
        self._is_resend = self._resent = self._over = False

    def __enter__(self) -> "Interruptions":
        global _listening
        if threading.current_thread() is not threading.main_thread():
            return self
        self._terminals = [fd for fd in (0, 1, 2) if os.isatty(fd)]
        self._ours, self._kernels = os.pipe()
        os.set_blocking(self._kernels, False)
        self._fd_before = signal.set_wakeup_fd(self._kernels, warn_on_full_buffer=False)
        _listening = self
        for number in SENTENCES:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._raise)
        self._thread = threading.Thread(target=self._listen, name="interruptions", daemon=True)
        self._thread.start()
        self._hook, sys.unraisablehook = sys.unraisablehook, self._resend
        return self

    def __exit__(self, *exception: object) -> None:
        global _listening
        if _listening is not self:
            return
        for number, handler in self._before.items():
            signal.signal(number, handler)
        sys.unraisablehook = self._hook
        signal.set_wakeup_fd(self._fd_before)
        _listening = None
        os.close(self._kernels)
        self._thread.join()
        os.close(self._ours)

    def describe(self) -> tuple[str, str, int]:
        """Return the message, hint and exit code; the same as for Ctrl-C without a signal, as at the end of input."""
        number = self.heard or SIGINT
        return SENTENCES[number], HINT, EXIT_CODE_BASE + number

    def leave_soon(self, code: int) -> None:
        """End the process EXIT_TIMEOUT_S seconds from now if a signal was heard, even if threads still wait."""
        self._over = True
        if self.heard:
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
            last = threading.Timer(EXIT_TIMEOUT_S, os._exit, (code,))
            last.daemon = True
            last.start()

    def _raise(self, number: int, frame: object) -> None:
        if number == SIGHUP:
            leave_terminals(self._terminals)
        if self.heard and not self._is_resend:
            return  # the thread decides whether it was a second one
        self._is_resend = False
        self.heard = self.heard or signal.Signals(number)
        self._reached.set()
        raise KeyboardInterrupt

    def _listen(self) -> None:
        """Read the numbers of received signals from the pipe, a byte each, until it closes."""
        first, since, idle = 0, 0.0, 0
        while True:
            if not select.select([self._ours], [], [], POLL_S if first else None)[0]:
                if not self._reached.is_set():
                    if monotonic() - since > RESPONSE_TIMEOUT_S:
                        self._leave(first)
                    continue
                # While it unwinds, the main thread handles an exception; Python 3.11 says "none" by three Nones.
                handled = sys._current_exceptions().get(self._main)
                idle = 0 if self._over or handled not in (None, (None, None, None)) else idle + 1
                if idle == 2:  # a library caught the interrupt and continued
                    idle = 0
                    self._resend_signal()
                continue
            number = next(iter(os.read(self._ours, 1)), None)
            if number is None:
                return
            if number not in self._before:
                continue
            if not first:
                first, since = number, monotonic()
            elif self._resent:
                self._resent = False
            elif monotonic() - since > SAME_REQUEST_S:
                self._leave(number)

    def _leave(self, number: int) -> None:
        words = f"error: {SENTENCES[signal.Signals(number)]}\nhint: {AT_ONCE}\n"
        with suppress(OSError):  # not through Python's streams, whose locks the main thread may hold
            os.write(2, (SHOW_CURSOR * os.isatty(2) + words).encode())
        os._exit(EXIT_CODE_BASE + number)

    def _resend(self, unraisable: "sys.UnraisableHookArgs") -> None:
        """Send the signal again if Python dropped its KeyboardInterrupt, because it arrived in a destructor."""
        if unraisable.exc_type is not KeyboardInterrupt:
            sys.__unraisablehook__(unraisable)
            return
        threading.Timer(0.05, self._resend_signal).start()

    def _resend_signal(self) -> None:
        self._is_resend = self._resent = bool(self.heard)
        # a signal, for a flag alone would not end what the main thread waits for
        signal.pthread_kill(self._main, self.heard or SIGINT)


def accept_signal() -> signal.Signals:
    """Return the signal that winds the command down, which the command takes as its end: it is not sent to it again."""
    if _listening is None or _listening.heard is None:
        return SIGINT  # in Python's own way
    _listening._over = True
    return _listening.heard


def leave_terminals(terminals: list[int], is_there: Callable[[int], bool] = os.isatty) -> None:
    """Turn file descriptors of a closed terminal to nowhere: writing to it fails, and results are yet to be written."""
    for fd in terminals:
        if not is_there(fd):
            nowhere = os.open(os.devnull, os.O_RDWR)
            os.dup2(nowhere, fd)
            os.close(nowhere)


def _reset_forked_child() -> None:
    """A fork has its parent's handlers and its end of the pipe; its parent ends it, or what watches that."""
    if _listening:
        signal.set_wakeup_fd(-1)
        for number in _listening._before:
            signal.signal(number, signal.SIG_DFL if number == SIGTERM else signal.SIG_IGN)


os.register_at_fork(after_in_child=_reset_forked_child)
