"""ONNX Runtime Web: what runs graphs in a browser, from the npm registry or a file, checked by its hash."""

import base64
import hashlib
import tarfile
from collections.abc import Mapping
from pathlib import Path

from lstr.extractors.errors import NetworkRuntimeError, WeightsError
from lstr.extractors.home import home
from lstr.pipelines.progress import Tell
from lstr.pipelines.weights.download import download

VERSION = "1.30.0"
NAME = f"onnxruntime-web-{VERSION}.tgz"
ADDRESS = f"https://registry.npmjs.org/onnxruntime-web/-/{NAME}"
INTEGRITY = "sha512-q0y+JrrtukXSzsBWEMccVfqX25LRmosXHF+CaRJmg8pZClzcV7svNc4rKY3jL02Vb7QmRMDs1SigqR4CXAfKYQ=="
"""What npm states of the package, as package-lock.json has it"""
SHA256 = "d2228df7e4616bc3348bf504ee888f3bec43789a273f0a63f3e68d203ce3bf71"
"""The same file's, by which a download that was cut goes on"""
FILES = ("ort.wasm.min.js", "ort-wasm-simd-threaded.mjs", "ort-wasm-simd-threaded.wasm")
"""The smallest set: the processor alone, without WebGPU and WebNN"""
BRING = f"bring {NAME} from a machine that has it, and give it with --set web_runtime=FILE."
LICENCE = """MIT License

Copyright (c) Microsoft Corporation

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
documentation files (the "Software"), to deal in the Software without restriction, including without limitation the
rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit
persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the
Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE
WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR
COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR
OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
"""


def web_runtime(given: str | Path | None, progress: Tell) -> Mapping[str, bytes]:
    """The files of ONNX Runtime Web by name, out of its package: one that is given, else one that was or is fetched.

    It is kept below $LSTR_HOME. Raises NetworkRuntimeError where it cannot be had or is another file, OutputError.
    """
    place = Path(given) if given else home() / "web" / NAME
    if not given and not place.is_file():
        try:
            download(ADDRESS, place, SHA256, progress)
        except WeightsError as error:
            raise NetworkRuntimeError(str(error), BRING) from error
    try:
        content = place.read_bytes()
    except OSError as error:
        raise NetworkRuntimeError(f"{place} cannot be read ({error.strerror or error}).", BRING) from error
    if integrity_of(content) != INTEGRITY:
        hint = f"give the file of {ADDRESS}." if given else f"delete {place}: it is damaged, and is fetched again then."
        raise NetworkRuntimeError(f"{place} is not {NAME} as npm has it: its SHA-512 is another.", hint)
    with tarfile.open(place) as package:
        return {name: _read(package, f"package/dist/{name}") for name in FILES}


def integrity_of(content: bytes) -> str:
    """The hash of a package as npm writes it."""
    return f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"


def _read(package: tarfile.TarFile, name: str) -> bytes:
    file = package.extractfile(name)
    assert file, "the hash is that of a package with these files"
    return file.read()
