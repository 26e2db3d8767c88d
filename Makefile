# Every command a person or CI needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CLIENT := $(VENV)/.client
# Files of tests side by side. Those that compute take a core each; the others mostly wait.
ON_CORES := -n auto --maxprocesses=4 --dist=loadfile
SIDE_BY_SIDE := -n 4 --dist=loadfile
LOCKS := deploy/requirements.lock deploy/requirements-dev.lock

.PHONY: help install serve demo test test-torch lint unit bounds nojit soak bench lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(CLIENT)  ## create .venv with locked versions and compile the kernels
	@$(BIN)/thalweg-server warmup

$(STAMP): $(LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; say which with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/requirements-dev.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The client is a package of its own: installed as its users install it, never editable.
$(CLIENT): $(STAMP) $(shell find app/client -type f)
	rm -rf build/client
	$(BIN)/pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir build/client ./app/client
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-index --force-reinstall build/client/*.whl
	@touch $@

serve: install  ## start the service on its defaults
	$(BIN)/thalweg-server serve

demo: install  ## the service, a connection that keeps breaking, and a table that is whole
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash deploy/demo.sh

test: install lint unit bounds nojit  ## everything CI checks

lint: $(STAMP)  ## format, lint, types, import directions
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

unit: $(STAMP)  ## the test suite as users run the code
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

bounds: $(STAMP)  ## the engine's tests with every array index checked
	NUMBA_BOUNDSCHECK=1 $(BIN)/thalweg-server warmup
	NUMBA_BOUNDSCHECK=1 $(BIN)/python -m pytest $(ON_CORES) tests/core

nojit: $(STAMP)  ## the engine's tests as plain Python, with coverage
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(ON_CORES) tests/core tests/app \
		--ignore=tests/app/server --ignore=tests/app/api --cov --cov-report=term

soak: install  ## the full counts: more examples, ten minutes of fuzzing
	THALWEG_SOAK=1 $(BIN)/python -m pytest
	$(BIN)/python -m tests.fuzz.fuzz_losses --seconds 600
	$(BIN)/python -m tests.fuzz.fuzz_http --seconds 600

test-torch:  ## the client under PyTorch, in an environment of its own
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/pip install --quiet --disable-pip-version-check \
		-r deploy/requirements-torch.txt
	$(VENV)-torch/bin/python -m pytest --confcutdir=tests/torch tests/torch

bench: install  ## speeds, as ratios within one run (THALWEG_*_PYTHON add the peers)
	$(BIN)/python -m tests.bench

lock:  ## renew the locked versions (needs uv on the PATH)
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --output-file deploy/requirements.lock
	uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --constraint deploy/requirements.lock \
		--output-file deploy/requirements-dev.lock

clean:  ## remove what was built here
	rm -rf $(VENV) $(VENV)-torch build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage
