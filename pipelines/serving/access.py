"""Who is let in from other machines, and by which names."""

from collections.abc import Callable
from dataclasses import dataclass

from lstr.pipelines.serving.users import Users


@dataclass(frozen=True)
class Access:
    """What a server has that is not for this machine's own browsers alone."""

    hosts: tuple[str, ...] = ()
    """Names by which browsers reach it, with a port where that is another one than the server's and the usual ones."""
    users: Users | None = None
    """Without users it takes the token that the address ends with."""
    login_page: Callable[[str], str] = str
    """The markup of the form, with a sentence about what went wrong."""
    trusted_proxy: bool = False
    """Whether a proxy before it says truly from where a request came (X-Forwarded-For), and by what."""
