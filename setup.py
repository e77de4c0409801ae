"""Build the optional compiled TV-L1 kernel; the metadata is in setup.cfg."""

import sys

from setuptools import Extension, setup

FLOW = "lstr/extractors/flow"
PARTS = ("variants", "kernel", "median", "scale")

if sys.platform == "win32":
    # before gigabytes of packages are installed; lstr uses file locks, processes and signals of POSIX
    sys.exit("error: lstr does not run on Windows itself. Install it on Linux in WSL 2: docs/how-to/install.md.")

setup(
    ext_modules=[
        Extension(
            "lstr.extractors.flow._tvl1",
            [f"{FLOW}/tvl1.c"],
            depends=[f"{FLOW}/tvl1_{part}.h" for part in PARTS],
            # no contraction, GCC's default on ARM, so that every float operation rounds as in OpenCV
            extra_compile_args=["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"],
            optional=True,  # without a compiler, lstr uses OpenCV, and `lstr doctor` reports it
        )
    ]
)
