"""Model files from the Hugging Face Hub, by huggingface_hub: it has the cache, the token and the proxy.

Only the one file that an address names is fetched. What is fetched is data, and is checked as any model file is.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lstr import __version__
from lstr.errors import CheckpointError
from lstr.extractors.weights.archive import is_archive
from lstr.extractors.weights.published_files import sha256_of
from lstr.pipelines.model_files.hub_address import HubAddress, is_hub_address

INSTALL = "pip install 'lstr-video[hub]'"
AGAIN = "run it again: what is whole by then is not fetched twice."


def local_model(name: str | Path) -> str | Path:
    """The path of a model: that of an address on the Hub (hf://), fetched where it is not here yet; any other name is
    itself. Raises CheckpointError."""
    return fetch_model(HubAddress.parse(name)) if is_hub_address(name) else name


def fetch_model(address: HubAddress) -> Path:
    """The local copy of a model file on the Hub; what has been fetched before is taken without a network too.

    Raises CheckpointError where it cannot be had, is no model file, or has another SHA-256 than the address says.
    """
    try:
        from huggingface_hub import hf_hub_download
    except ImportError as error:
        raise CheckpointError(
            f"{address} is on the Hugging Face Hub, and huggingface_hub is not installed.", INSTALL
        ) from error
    with _typed_errors(address), _quiet():
        path = Path(
            hf_hub_download(
                address.repository,
                address.file,
                revision=address.revision,
                library_name="lstr-video",
                library_version=__version__,
            )
        )
    if address.sha256 and (found := sha256_of(path)) != address.sha256:
        raise CheckpointError(
            f"{address} is another file: the SHA-256 of what the Hub has there is {found}.",
            "name the commit that you mean with @COMMIT, or ask whoever gave you the address.",
        )
    if not is_archive(path):
        raise CheckpointError(
            f"{address} is no model file, whatever its name is.", "use only model files that lstr has written."
        )
    return path


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of huggingface_hub, which show signed addresses; what fails is an error here."""
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextmanager
def _typed_errors(address: HubAddress) -> Iterator[None]:
    """Whatever huggingface_hub raises, as CheckpointError. Its own messages name signed addresses, and are left out."""
    from huggingface_hub import errors

    place, at = address.repository, address.revision or "main"
    try:
        yield
    except errors.GatedRepoError as error:
        raise CheckpointError(
            f"{place} on the Hub is gated: its owner says who may have it.",
            "ask for access on its page, then log in with that account: hf auth login",
        ) from error
    except errors.RepositoryNotFoundError as error:
        raise CheckpointError(
            f"The Hub has no repository {place}, or does not show it to you.",
            "check the name; for a private one log in: hf auth login",
        ) from error
    except errors.RevisionNotFoundError as error:
        hint = "name a branch, a tag or a commit of it after the @, or none for main."
        raise CheckpointError(f"{place} on the Hub has no revision {at}.", hint) from error
    except errors.LocalEntryNotFoundError as error:
        raise _not_here(address, error.__cause__) from error
    except errors.EntryNotFoundError as error:
        hint = "look for its name among the files of the repository."
        raise CheckpointError(f"{place} on the Hub has no file {address.file} in {at}.", hint) from error
    except errors.HfHubHTTPError as error:
        raise _not_here(address, error) from error
    except errors.HFValidationError as error:
        raise CheckpointError(f"{address} is no address that the Hub could have.", "check owner and name.") from error
    except Exception as error:  # of the libraries below: by version requests, httpx, hf_xet, or the disk
        if isinstance(error, OSError) and error.errno is not None and error.strerror:
            hint = "make room, or name another folder in $HF_HOME."
            raise CheckpointError(f"{address} cannot be kept here ({error.strerror}).", hint) from error
        raise CheckpointError(f"{address} did not come whole ({type(error).__name__}).", AGAIN) from error


def _not_here(address: HubAddress, cause: BaseException | None) -> CheckpointError:
    """Why a file that has never been fetched cannot be fetched now."""
    from huggingface_hub import errors

    if isinstance(cause, errors.OfflineModeIsEnabled):
        return CheckpointError(
            f"{address} has not been fetched before, and $HF_HUB_OFFLINE forbids to fetch it.",
            "unset HF_HUB_OFFLINE, or fetch it once where there is a network.",
        )
    if isinstance(cause, errors.HfHubHTTPError):
        code = getattr(cause.response, "status_code", 0)
        if code == 401:
            sentence, hint = "The Hub does not accept the token that is set here", "log in anew: hf auth login"
        elif code == 403:
            sentence, hint = f"The Hub forbids {address} to the token that is set here", "ask its owner for access."
        else:
            sentence, hint = f"The Hub answers {code} for {address}", "try again later."
        return CheckpointError(f"{sentence}.", hint)
    return CheckpointError(
        f"The Hub cannot be reached, and {address} has not been fetched before.",
        "check the network; what was fetched once needs none.",
    )
