"""Names that become parts of paths: of networks, of weights, of files to fetch."""

import re

LONGEST = 200  # bytes, so that a stream, weights and an ending beside it still fit a file name
MADE = 48  # characters of a name that is made here; of four bytes each they are no more than LONGEST
SLUG = re.compile(r"\w[\w.-]*")


def is_slug(name: object) -> bool:
    """Whether a name is one part of a path, in the same folder wherever it is put: `resnet50`, `tsn_r18`, `a.pth`."""
    return isinstance(name, str) and bool(SLUG.fullmatch(name)) and len(name.encode(errors="replace")) <= LONGEST


def slug(text: str, default: str, longest: int = MADE) -> str:
    """A text as such a name, of `longest` characters at most; `default` where nothing of it can stay."""
    return re.sub(r"[^\w.-]+", "-", text).strip("-.")[:longest].rstrip("-.") or default
