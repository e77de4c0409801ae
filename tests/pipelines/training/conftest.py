"""The subsets of a set of features."""

import pytest

from lstr.pipelines.features.dataset import Split, read_split


@pytest.fixture
def split(feature_set) -> Split:
    return read_split(feature_set.features, feature_set.labels, "training")


@pytest.fixture
def validation(feature_set) -> Split:
    return read_split(feature_set.features, feature_set.labels, "validation")
