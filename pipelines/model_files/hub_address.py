"""Addresses of model files on the Hugging Face Hub, and where huggingface_hub keeps a copy of what they name."""

import re
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from urllib.parse import unquote

from lstr.errors import CheckpointError
from lstr.extractors.addresses import shown
from lstr.extractors.weights.archive import SUFFIX
from lstr.extractors.weights.published_files import sha256_of

SCHEME = re.compile(r"hf:/{1,2}")  # one slash too: a path made of an address has no two in a row
NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_]|-(?!-)|\.(?!\.))*(?<![.-])"
ADDRESS = re.compile(
    rf"hf:/{{1,2}}(?:models/)?(?P<repository>{NAME}/{NAME})"
    r"(?:@(?P<revision>refs/(?:pr/\d+|convert/[\w.-]+)|[^/@#]+))?"
    r"/(?P<file>[^#]+)(?:#sha256=(?P<sha256>[0-9A-Fa-f]{64}))?"
)
REVISION = re.compile(r"[A-Za-z0-9_][\w.+-]*(?:/[A-Za-z0-9_][\w.+-]*)*", re.ASCII)
ELSEWHERE = re.compile(r"hf:/{1,2}(datasets|spaces|kernels|buckets)/")
KEPT = re.compile(r"models--(.+)--(.+)")
"""A repository's folder in the cache of huggingface_hub; no name has two hyphens in a row."""
COMMIT = re.compile(r"[0-9a-f]{40}")
HINT = "write hf://OWNER/REPOSITORY/FILE.lstr, with @REVISION after the repository where it is not main."


@dataclass(frozen=True)
class HubAddress:
    """A model file of a repository on the Hub; its text is `hf://OWNER/REPOSITORY@REVISION/FILE.lstr#sha256=HEX`."""

    repository: str
    """OWNER/NAME."""
    file: str
    """Its path in the repository."""
    revision: str | None = None
    """A branch, a tag or a commit; None is the branch main."""
    sha256: str | None = None
    """What the SHA-256 of the file has to be; None where any will do."""

    def __str__(self) -> str:
        at = f"@{self._revision}" if self.revision else ""
        return f"hf://{self.repository}{at}/{self.file}" + (f"#sha256={self.sha256}" if self.sha256 else "")

    @property
    def _revision(self) -> str:
        revision = self.revision or ""
        return revision if revision.startswith("refs/") else revision.replace("/", "%2F")

    @classmethod
    def parse(cls, text: str | Path) -> "HubAddress":
        """From its text. Raises CheckpointError for what is no address of a model file."""
        named = shown(str(text))
        if found := ELSEWHERE.match(str(text)):
            raise CheckpointError(f"{named} is in one of the Hub's {found[1]}, and model files are in models.", HINT)
        parts = ADDRESS.fullmatch(str(text))
        if not parts:
            raise CheckpointError(f"{named} is no address of a model file on the Hub.", HINT)
        file, revision = parts["file"], parts["revision"] and unquote(parts["revision"])
        pieces = file.split("/")
        if not file.isprintable() or "\\" in file or any(piece in ("", ".", "..") for piece in pieces):
            raise CheckpointError(f"{named} names no file of a repository.", HINT)
        if revision and (not REVISION.fullmatch(revision) or ".." in revision):
            raise CheckpointError(f"{named} names no revision: {revision!r}.", HINT)
        if not file.endswith(SUFFIX):
            raise CheckpointError(
                f"{named} is no model file by its name, and nothing else is fetched.",
                "ask whoever put it there to pack it: lstr pack RUN -o NAME.lstr",
            )
        return cls(parts["repository"], file, revision, parts["sha256"] and parts["sha256"].lower())


@dataclass(frozen=True)
class HubFile:
    """A file that came from the Hub: where it is now, and what it was there."""

    path: Path
    address: HubAddress
    """With the commit as its revision, whatever named it."""

    @cached_property
    def sha256(self) -> str:
        """The SHA-256 of its bytes as they are here."""
        return sha256_of(self.path)

    def to_dict(self) -> dict[str, str]:
        """What is recorded of it: the address with the commit, the commit, and the hash."""
        return {"address": str(self.address), "commit": self.address.revision or "", "sha256": self.sha256}


def is_hub_address(text: object) -> bool:
    """Whether a text or path is meant as an address on the Hub."""
    return SCHEME.match(str(text)) is not None


def hub_file(path: str | Path) -> HubFile | None:
    """What a path was on the Hub, by the place that huggingface_hub has given it; None for any other file.

    That place is models--OWNER--NAME/snapshots/COMMIT/FILE.
    """
    path = Path(path)
    parts = path.absolute().parts
    for at in range(len(parts) - 3):
        repository = KEPT.fullmatch(parts[at])
        if repository and parts[at + 1] == "snapshots" and COMMIT.fullmatch(parts[at + 2]):
            address = HubAddress("/".join(repository.groups()), "/".join(parts[at + 3 :]))
            return HubFile(path, replace(address, revision=parts[at + 2]))
    return None
