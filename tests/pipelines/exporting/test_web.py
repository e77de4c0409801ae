"""`lstr export --web`: what the folder holds, what it needs, and what is no page."""

import json
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

from lstr.extractors.errors import NetworkRuntimeError, OutputError, RecipeError
from lstr.pipelines.exporting import web_runtime
from lstr.pipelines.exporting.web import WebOptions, export_web
from lstr.pipelines.exporting.web_page import SCRIPTS, WORKER
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.progress import result_of
from lstr.pipelines.reports.page import read_part
from tests.support.mistakes import mistake
from tests.support.web_set import kept_runtime

pytestmark = pytest.mark.long  # a model is exported


def package_of(path: Path, **files: str) -> Path:
    with tarfile.open(path, "w:gz") as package:
        for name, text in files.items():
            about = tarfile.TarInfo(f"package/dist/{name}")
            about.size = len(text)
            package.addfile(about, BytesIO(text.encode()))
    return path


def test_another_package_is_refused(tmp_path):
    given = package_of(tmp_path / "onnxruntime-web.tgz", **dict.fromkeys(web_runtime.FILES, "alert(1)"))
    with pytest.raises(NetworkRuntimeError, match="its SHA-512 is another") as caught:
        web_runtime.web_runtime(given, lambda *_: None)
    assert web_runtime.ADDRESS in caught.value.hint


def test_a_package_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NetworkRuntimeError, match="No such file") as caught:
        web_runtime.web_runtime(tmp_path / "none.tgz", lambda *_: None)
    assert "--set web_runtime=FILE" in caught.value.hint


def test_a_registry_that_cannot_be_reached_is_said(monkeypatch):
    monkeypatch.setattr(web_runtime, "ADDRESS", "https://registry.invalid/onnxruntime-web.tgz")
    with pytest.raises(NetworkRuntimeError, match="cannot be reached") as caught:
        web_runtime.web_runtime(None, lambda *_: None)
    assert "--set web_runtime=FILE" in caught.value.hint and "mirror" not in caught.value.hint


def test_a_recipe_with_flow_has_no_page(small_set, tmp_path, lstr):
    model = tmp_path / "small.lstr"
    write_model(model, small_set.checkpoint, None, {})
    with pytest.raises(RecipeError, match="sees optical flow"):
        result_of(export_web(WebOptions(model, tmp_path / "page")))
    mistake(lstr("export", model, "--web", "-o", tmp_path / "page"), 4, "sees optical flow", "--recipe pretrained")
    assert not (tmp_path / "page").exists()


def test_every_script_of_the_worker_is_beside_it():
    named = set(re.findall(r'"([\w-]+\.js)"', read_part("browser-worker.js")))
    assert named <= {*SCRIPTS, *WORKER} and {*WORKER} - named == {"browser-worker.js"}


@pytest.mark.long
def test_the_folder_is_whole_and_leads_nowhere_else(web):
    files = {str(path.relative_to(web.page)): path for path in web.page.rglob("*") if path.is_file()}
    graphs = {f"graphs/{name}.onnx" for name in ("lstr", "rgb", "grey", "difference", "change")}
    runtime = {f"onnxruntime/{name}" for name in web_runtime.FILES}
    scripts = {f"scripts/{name}" for name in (*SCRIPTS, *WORKER)}
    assert files.keys() == {"index.html", "style.css", "icon.svg", "LICENSES.txt", *graphs, *runtime, *scripts}
    text = files["index.html"].read_text()
    assert "Figures &lt;that act&gt;" in text and "<that act>" not in text
    addresses = re.findall(r'(?:src|href)="([^"]*)"', text)
    assert addresses and all(address in files for address in addresses)
    for name in scripts:
        assert not re.search(r"https?://(?!www\.w3\.org)", files[name].read_text()), name
    licences = files["LICENSES.txt"].read_text()
    assert "Copyright (c) Microsoft Corporation" in licences and "Apache License" in licences
    about = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert [part["stream"] for part in about["streams"]] == ["rgb", "grey", "difference", "change"]
    assert about["step"]["streams"] == 1 and about["rules"][0] is None


@pytest.mark.long
def test_a_page_of_an_exported_model_needs_no_torch(web, tmp_path, base):
    """It takes the place of an earlier page, and of nothing else."""
    page, package = tmp_path / "page", kept_runtime(base / "web set")
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from lstr_cli.main import main\n"
        f"sys.argv = ['lstr', 'export', {str(web.model)!r}, '--web', '-o', {str(page)!r}, '--json',"
        f" '--set', 'web_runtime={package}']\n"
        "main()"
    )
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["bytes"].keys() == {"graphs", "scripts", "page", "onnxruntime"}
        assert (page / "index.html").read_bytes() == (web.page / "index.html").read_bytes()
    assert [*tmp_path.iterdir()] == [page], "nothing is left beside it"
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept.txt").write_text("mine")
    with pytest.raises(OutputError, match="holds something else"):
        result_of(export_web(WebOptions(web.model, other, runtime=package)))
    assert (other / "kept.txt").read_text() == "mine"
