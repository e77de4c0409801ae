PYTHON ?= python3
VENV := .venv
LSTR := $(VENV)/bin/lstr

# One process more than there are cores, since tests also wait: for programs, pages and cameras. In the order of folders,
# for the default order leaves files with one long test to the end
WORKERS = $(shell $(PYTHON) -c 'import os; print(min((os.cpu_count() or 1) + 1, 4))')
PYTEST = $(VENV)/bin/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# mmengine brings yapf, which writes its grammar to a file at its first import; a second process would read it half written
FIRST_IMPORT := $(VENV)/bin/python -W ignore -c 'import mmengine.config'
# bytecode is written at the first import, of what is imported alone: half of the work of an installation was compiling
PIP := $(VENV)/bin/pip install --quiet --disable-pip-version-check --no-compile
# an empty opencv-python beside opencv-contrib-python: .ci/one_opencv.py
ONE_OPENCV := --find-links build/opencv -c build/opencv/one_opencv.txt

# PyTorch for processors alone, on an index of its own, where no NVIDIA GPU is: 4 GB less. TORCH=gpu takes the other one
TORCH ?= $(if $(shell command -v nvidia-smi)$(wildcard /proc/driver/nvidia/version),gpu,cpu)
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# where a shell forbids bytecode, every process of the tests would compile all of this again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install install-test demo test test-all test-oldest test-slow test-gpu gpu-run lint docs audit clean

install: $(VENV)/.installed

# what the tests and the linters need besides
install-test: $(VENV)/.installed-test

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit("lstr needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

# --isolated and no configuration: pip would take the other build from whatever other index is configured. An OpenCV of
# an older checkout goes first: where opencv-python is replaced later, files go with it that both have
$(VENV)/.torch: | $(VENV)/bin/pip
	@$(PYTHON) .ci/one_opencv.py build/opencv
	@$(VENV)/bin/pip --disable-pip-version-check uninstall --quiet --yes opencv-python opencv-contrib-python 2>/dev/null
	@if [ "$(TORCH) $$(uname -sm)" = "cpu Linux x86_64" ]; then \
	  PIP_CONFIG_FILE=/dev/null $(PIP) --isolated --retries 1 --timeout 15 --index-url $(TORCH_INDEX) torch torchvision 2>/dev/null || \
	  echo "PyTorch for processors cannot be had from $(TORCH_INDEX): the build for GPUs is installed, which is 4 GB larger." >&2; fi
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

# threads of OpenMP that wait give way to the tests beside them: two demos at once took 76 s instead of 120 s
test test-all: export OMP_WAIT_POLICY := PASSIVE

test: install-test
	$(PYTEST) -m "not slow and not long"

test-all: install-test
	$(PYTEST) -m "not slow"

# `make test` in an environment of its own, which holds the oldest versions that setup.cfg allows
test-oldest:
	@mkdir -p build
	$(PYTHON) tests/support/oldest.py > build/oldest.txt
	PIP_CONSTRAINT=build/oldest.txt $(MAKE) test VENV=.venv-oldest TORCH=gpu

test-slow: install-test
	$(VENV)/bin/pytest -m slow

# PYTEST_GPU names another Python's pytest: `make test-gpu PYTEST_GPU="python3 -m pytest"` installs nothing
PYTEST_GPU ?= $(VENV)/bin/pytest
LSTR_NEEDS_GPU := 1
GPU_TESTS := $(shell grep -rlE '(@pytest.|=pytest.)mark\.gpu' tests --include='test_*.py' | sort)

# only the files that have such tests: the others import what tests alone need
test-gpu: $(if $(filter $(VENV)/bin/pytest,$(PYTEST_GPU)),install-test)
	LSTR_NEEDS_GPU=$(LSTR_NEEDS_GPU) $(PYTEST_GPU) -m gpu $(GPU_TESTS)

# what a borrowed machine with a GPU can do, in ten minutes: benchmarks/first_gpu_run.py; GPU_RUN=--dry-run needs none
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

# pip-audit finds "no known vulnerabilities" where nobody answers; of this version there are some
KNOWN_WEAK := requests==2.31.0

# known weaknesses of what is installed, and its licences
audit: install
	@$(PIP) $(ONE_OPENCV) -e '.[audit]'
	@mkdir -p build
	@echo $(KNOWN_WEAK) > build/known-weak.txt
	@$(VENV)/bin/pip-audit --disable-pip --no-deps --progress-spinner off -r build/known-weak.txt 2>&1 | grep -q '^requests' || \
	  { echo "audit: what lists known weaknesses cannot be reached from here." >&2; exit 1; }
	$(VENV)/bin/pip-audit --local --skip-editable --progress-spinner off
	$(VENV)/bin/pip-licenses --summary --order=count

clean:
	rm -rf $(VENV) .venv-oldest *.egg-info build docs/_generated .mypy_cache .pytest_cache .ruff_cache demo
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
