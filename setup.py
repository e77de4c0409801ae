"""Builds the optional compiled TV-L1 kernel; the metadata is in setup.cfg."""

import sys

from setuptools import Extension, setup

FLOW = "lstr/extractors/flow"

# no contraction: every float operation rounds as OpenCV's does
flags = [] if sys.platform == "win32" else ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]

setup(
    ext_modules=[
        Extension(
            "lstr.extractors.flow._tvl1",
            [f"{FLOW}/tvl1.c"],
            depends=[f"{FLOW}/tvl1_{part}.h" for part in ("kernel", "median", "median_rows", "scale", "warp")],
            extra_compile_args=flags,
            optional=True,  # without a compiler the install succeeds and OpenCV serves
        )
    ]
)
