"""Builds the optional compiled TV-L1 kernel; the metadata is in setup.cfg."""

import sys

from setuptools import Extension, setup

FLOW = "lstr/extractors/flow"
PARTS = ("variants", "kernel", "median", "scale")

if sys.platform == "win32":
    # at once, before gigabytes of other packages: it locks files, ends processes and hears signals as POSIX does
    sys.exit("error: lstr does not run on Windows itself. Install it on Linux in WSL 2: docs/how-to/install.md.")

setup(
    ext_modules=[
        Extension(
            "lstr.extractors.flow._tvl1",
            [f"{FLOW}/tvl1.c"],
            depends=[f"{FLOW}/tvl1_{part}.h" for part in PARTS],
            # no contraction, which is GCC's default on ARM: every float operation rounds as OpenCV's does
            extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,  # without a compiler the install succeeds, `lstr doctor` says so, and OpenCV serves
        )
    ]
)
