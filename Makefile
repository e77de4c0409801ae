PYTHON ?= python3
VENV := .venv
LSTR := $(VENV)/bin/lstr

# One process more than cores, because tests wait for programs, pages and cameras. Files run in the order of folders: the
# default order runs files with a single long test last
WORKERS = $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')
PYTEST = $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# mmengine imports yapf, which writes a grammar file at its first import; a parallel process would read an incomplete file
FIRST_IMPORT := $(VENV)/bin/python -W ignore -c 'import mmengine.config'
# bytecode is compiled at the first import, and only for imported modules: it took half of the time of an installation
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile
# an empty opencv-python package next to opencv-contrib-python: .ci/one_opencv.py
ONE_OPENCV := --find-links build/opencv -c build/opencv/one_opencv.txt

# without an NVIDIA GPU, install the CPU build of PyTorch from its own index, which is 4 GB smaller; TORCH=gpu overrides it
TORCH ?= $(if $(shell command -v nvidia-smi)$(wildcard /proc/driver/nvidia/version),gpu,cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# otherwise every test process would compile all modules again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install install-test demo test test-all test-oldest test-slow test-gpu gpu-run lint docs audit clean

install: $(VENV)/.installed

# also installs what tests and linters need
install-test: $(VENV)/.installed-test

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("lstr needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# --isolated and no configuration file: pip would prefer the GPU build of another configured index. An earlier OpenCV is
# uninstalled first, because replacing opencv-python later removes files that both packages have
$(VENV)/.torch: | $(VENV)/bin/pip
	@$(PYTHON) .ci/one_opencv.py build/opencv
	@$(VENV)/bin/pip --disable-pip-version-check uninstall --quiet --yes opencv-python opencv-contrib-python 2>/dev/null
	@if [ "$(TORCH) $$(uname -sm)" = "cpu Linux x86_64" ]; then \
	  PIP_CONFIG_FILE=/dev/null $(PIP) --isolated --retries 1 --timeout 15 --index-url $(TORCH_INDEX) torch torchvision 2>/dev/null || \
	  echo "The CPU build of PyTorch is not available from $(TORCH_INDEX); installing the GPU build, which is 4 GB larger." >&2; fi
	@touch $@

$(VENV)/.installed: setup.cfg pyproject.toml | $(VENV)/.torch
	$(PIP) $(ONE_OPENCV) -e '.[learn]'
	@$(FIRST_IMPORT)
	@$(VENV)/bin/python -c 'from lstr.pipelines.doctor import notes; print(end=notes())'
	@touch $@

$(VENV)/.installed-test: setup.cfg pyproject.toml | $(VENV)/.torch
	$(PIP) $(ONE_OPENCV) -e '.[test]'
	@$(FIRST_IMPORT)
	@touch $(VENV)/.installed $@

demo: install
	$(LSTR) demo

# waiting OpenMP threads yield to other tests: two parallel demos took 76 s instead of 120 s
test test-all: export OMP_WAIT_POLICY := PASSIVE

test: install-test
	$(PYTEST) -m "not slow and not long"

test-all: install-test
	$(PYTEST) -m "not slow"

# `make test` in a separate environment with the oldest versions that setup.cfg allows
test-oldest:
	@mkdir -p build
	$(PYTHON) tests/support/oldest.py > build/oldest.txt
	PIP_CONSTRAINT=build/oldest.txt $(MAKE) test VENV=.venv-oldest TORCH=gpu

test-slow: install-test
	$(VENV)/bin/pytest -m slow

# use the pytest of another Python, without installing: `make test-gpu PYTEST_GPU="python3 -m pytest"`
PYTEST_GPU ?= $(VENV)/bin/pytest
LSTR_NEEDS_GPU := 1
GPU_TESTS := $(shell grep -rlE '(@pytest.|=pytest.)mark\.gpu' tests --include='test_*.py' | sort)

# only files with GPU tests, because the others import packages that are needed for tests only
test-gpu: $(if $(filter $(VENV)/bin/pytest,$(PYTEST_GPU)),install-test)
	LSTR_NEEDS_GPU=$(LSTR_NEEDS_GPU) $(PYTEST_GPU) -m gpu $(GPU_TESTS)

# measure a machine with a GPU in ten minutes: benchmarks/first_gpu_run.py; GPU_RUN=--dry-run needs no GPU
GPU_PYTHON ?= $(PYTHON)
gpu-run:
	$(GPU_PYTHON) benchmarks/first_gpu_run.py $(GPU_RUN)

lint: install-test
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

docs: install $(VENV)/.docs-installed
	$(VENV)/bin/python -m sphinx -b html -n -W --keep-going --quiet docs build/docs
	@echo "documentation: build/docs/index.html"

$(VENV)/.docs-installed: setup.cfg
	$(PIP) $(ONE_OPENCV) -e '.[docs]'
	@touch $@

# pip-audit also reports no vulnerabilities if its database is not reachable; this version has some
KNOWN_WEAK := requests==2.31.0

# known vulnerabilities and licences of the installed packages
audit: install
	@$(PIP) $(ONE_OPENCV) -e '.[audit]'
	@mkdir -p build
	@echo $(KNOWN_WEAK) > build/known-weak.txt
	@$(VENV)/bin/pip-audit --disable-pip --no-deps --progress-spinner off -r build/known-weak.txt 2>&1 | grep -q '^requests' || \
	  { echo "audit: the database of vulnerabilities is not reachable." >&2; exit 1; }
	$(VENV)/bin/pip-audit --local --skip-editable --progress-spinner off
	$(VENV)/bin/pip-licenses --summary --order=count

clean:
	rm -rf $(VENV) .venv-oldest *.egg-info build docs/_generated .mypy_cache .pytest_cache .ruff_cache demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
