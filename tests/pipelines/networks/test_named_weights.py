"""Weights as a caller in Python names them: by one name, or by stream."""

import pytest

from lstr.errors import ConfigError
from lstr.pipelines.detection.networks import NetworkOptions
from lstr.pipelines.networks.named_weights import named_weights
from lstr.pipelines.weights.published import choose


def test_weights_have_names_in_python():
    """What the warning of random networks says to write was an AttributeError, and by stream no file."""
    (entry,) = choose(["imagenet"])
    grey = {"grey": str(entry.place)}
    for named in ("imagenet", {"grey": "imagenet"}, entry.name, {"grey": entry.place}):
        assert named_weights(named, ["grey"]) == grey
        for networks in (NetworkOptions(weights=named), {"weights": named}):
            assert NetworkOptions.of(networks, ["grey"]).weights == grey
    assert named_weights(entry.place, ["rgb"]) == {"rgb": str(entry.place)}, "a file says its stream itself"
    assert named_weights(None, ["grey"]) == {} and named_weights({"grey": None}, ["grey"]) == {"grey": None}
    for wrong in (["imagenet"], {"colour": "imagenet"}, {7: "imagenet"}):
        with pytest.raises(ConfigError, match="The weights are") as caught:
            named_weights(wrong, ["grey"])
        assert "rgb" in caught.value.hint
