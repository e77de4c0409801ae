"""People who may see a page: their passwords as argon2 hashes, and the visits that are going on."""

import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING

from lstr.errors import LstrError

if TYPE_CHECKING:  # argon2 is installed where there are users
    from argon2 import PasswordHasher

MOST_ATTEMPTS, ATTEMPT_SECONDS = 5, 60.0
"""Passwords that may be tried from one address within so many seconds."""
MOST_ADDRESSES = 4096
MOST_VISITS = 256
VISIT_SECONDS = 14 * 86400.0
"""After which a visit that nobody goes on with is over."""
LONGEST = 1024  # characters of a password
SHORTEST = 16  # bytes of a hash; of one with fewer the end is missing


class UsersError(LstrError):
    """Users that cannot be used."""

    exit_code = 2


class Users:
    """Names and argon2 hashes. Raises UsersError without argon2, and for what is no hash of it."""

    def __init__(self, hashes: Mapping[str, str]):
        self._hasher = _hasher()
        self._hashes = dict(hashes)
        for name, text in self._hashes.items():
            check_hash(name, text)
        # a name that nobody has takes as long as a wrong password
        self._nobody = self._hasher.hash(secrets.token_urlsafe(16))
        self._turn = threading.Lock()  # each check takes 64 MB: one at a time

    def check(self, name: str, password: str) -> bool:
        """Whether it is the password of a user; takes tens of milliseconds."""
        from argon2.exceptions import Argon2Error, InvalidHashError

        if len(password) > LONGEST:
            return False
        with self._turn:
            try:
                self._hasher.verify(self._hashes.get(name, self._nobody), password)
            except (Argon2Error, InvalidHashError):
                return False
        return name in self._hashes


def hash_password(password: str) -> str:
    """The argon2 hash of a password, for a configuration. Raises UsersError."""
    if not 8 <= len(password) <= LONGEST:
        raise UsersError(f"A password has from 8 to {LONGEST} characters.", "choose another one.")
    return str(_hasher().hash(password))


def check_hash(name: str, text: str) -> None:
    """See that a user's password can be checked by a text. Raises UsersError without argon2, and for no hash of it."""
    _hasher()
    from argon2 import extract_parameters
    from argon2.exceptions import InvalidHashError

    hint = "make one with `lstr watch --password`."
    try:
        length = extract_parameters(text).hash_len if text.isascii() else 0
    except InvalidHashError:
        length = 0
    if length < SHORTEST:
        raise UsersError(f"The password of {name} is no whole argon2 hash.", hint)


def _hasher() -> "PasswordHasher":
    try:
        from argon2 import PasswordHasher
    except ImportError as error:
        raise UsersError(
            "Users need argon2, which is not installed.", "install it with `pip install 'lstr-video[watch]'`."
        ) from error
    return PasswordHasher()


class Attempts:
    """Passwords that were tried lately, by the address they came from; `clock` in seconds."""

    def __init__(self, clock: Callable[[], float] = monotonic):
        self._clock = clock
        self._tried: OrderedDict[str, deque[float]] = OrderedDict()

    def allow(self, address: str) -> bool:
        """Whether one more may be tried from an address; it is counted."""
        now, place = self._clock(), _network(address)
        tried = self._tried.setdefault(place, deque(maxlen=MOST_ATTEMPTS))
        self._tried.move_to_end(place)
        while len(self._tried) > MOST_ADDRESSES:
            self._tried.popitem(last=False)
        if len(tried) == MOST_ATTEMPTS and now - tried[0] < ATTEMPT_SECONDS:
            return False
        tried.append(now)
        return True


def _network(address: str) -> str:
    """An IPv4 address, or the half of an IPv6 address that its owner has all addresses of."""
    return ":".join(address.split(":")[:4]) if ":" in address and "." not in address else address


class Visits:
    """Visits that are going on, by ids that nobody guesses; kept in memory, so that a restart ends them."""

    def __init__(self, clock: Callable[[], float] = monotonic):
        self._clock = clock
        self._seen: OrderedDict[str, float] = OrderedDict()

    def begin(self) -> str:
        """The id of a new visit; the oldest one ends where there are too many."""
        visit = secrets.token_urlsafe(32)
        self._seen[visit] = self._clock()
        while len(self._seen) > MOST_VISITS:
            self._seen.popitem(last=False)
        return visit

    def goes_on(self, visit: str) -> bool:
        """Whether there is such a visit."""
        if self._clock() - self._seen.get(visit, -VISIT_SECONDS) >= VISIT_SECONDS:
            self._seen.pop(visit, None)
            return False
        self._seen[visit] = self._clock()
        self._seen.move_to_end(visit)
        return True

    def lasts(self, visit: str) -> bool:
        """Whether there is such a visit; to ask is not to go on with it."""
        return self._clock() - self._seen.get(visit, -VISIT_SECONDS) < VISIT_SECONDS

    def end(self, visit: str) -> None:
        """End a visit."""
        self._seen.pop(visit, None)
