"""`lstr models` lists every kind, and tells one whole."""

import json

from lstr.kinds import KINDS, presets


def test_all_kinds_and_one(lstr, monkeypatch, tmp_path):
    monkeypatch.setenv("LSTR_HOME", str(tmp_path))
    code, out, _ = lstr("models", "miniroad", "--json")
    one = json.loads(out)
    assert code == 0 and (one["kind"], one["year"]) == ("miniroad", 2023)
    assert one["parameters"] == 15_763_478 and one["multiply_adds"] == 15_751_168
    assert one["presets"][0] == "miniroad-thumos14" and one["results"][0]["value"] == 71.8
    code, out, _ = lstr("models", "miniroad")
    assert code == 0 and "without a licence file" in out and "71.8" in out and "miniroad_small" in out


def test_the_list_has_the_published_number_of_a_kind(lstr):
    code, out, _ = lstr("models")
    rows = {line.split("\t")[0]: line.split("\t") for line in out.splitlines()}
    assert code == 0 and "71.8" in rows["miniroad"]


def test_a_wrong_kind_names_the_right_ones(lstr):
    code, _, err = lstr("models", "mini")
    assert code == 2 and "hint:" in err and all(kind in err for kind in KINDS)


def test_a_wrong_preset_names_the_right_ones(lstr, tmp_path):
    code, _, err = lstr("train", tmp_path, "--labels", tmp_path, "-o", tmp_path / "run", "--preset", "thumos")
    assert code == 2 and "hint:" in err and all(name in err for name in presets())
