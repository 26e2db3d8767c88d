# Every command a person or CI needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
TOOLS := $(VENV)/.tools
CLIENT := $(VENV)/.client
PLOT := $(VENV)/.plot
DOCS := $(VENV)/.docs
PIP := $(BIN)/pip --quiet --disable-pip-version-check
# Tests start hundreds of processes: none should compile modules that another one has compiled.
unexport PYTHONDONTWRITEBYTECODE
# Files of tests side by side (tests/side_by_side.py). Those that compute take a core each. Of the
# others five processes keep two cores busy, with the servers that they wait for.
ON_CORES := --processes $(shell getconf _NPROCESSORS_ONLN)
SIDE_BY_SIDE := --processes 5
# Tests of what kernels are part of, except those that show the same however kernels run.
ENGINE := tests/core --ignore=tests/core/compat -m "not once"
RUNTIME_LOCKS := deploy/requirements-pip.lock deploy/requirements.lock deploy/requirements-build.lock

# Several jobs at a time, as downloads, types and many tests leave a core idle.
AT_ONCE := $(MAKE) --no-print-directory

.PHONY: help install kernels serve demo docs test checks test-torch fmt lint unit bounds nojit coverage oasis oasis-runs soak nodes kubernetes interop browser mutants bench audit lock clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

install: $(CLIENT) kernels  ## create .venv with locked versions and compile the kernels

kernels: $(RUNTIME)
	@$(BIN)/thalweg-server warmup

$(RUNTIME): $(RUNTIME_LOCKS) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Python 3.11 or newer is needed; name one with PYTHON=..."; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null \
		|| { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --no-compile --require-hashes -r deploy/requirements-pip.lock
	$(PIP) install --no-compile --require-hashes -r deploy/requirements.lock -r deploy/requirements-build.lock
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

# What developers need besides: linters, test libraries, the extras.
$(TOOLS): $(RUNTIME) deploy/requirements-dev.lock
	$(PIP) install --no-compile --require-hashes -r deploy/requirements-dev.lock
	@touch $@

# What draws pictures: an extra of the service, which the demo shows.
$(PLOT): $(RUNTIME) deploy/requirements-plot.lock
	$(PIP) install --no-compile --require-hashes -r deploy/requirements-plot.lock
	@touch $@

# The client is a package of its own: installed as its users install it, never editable.
$(CLIENT): $(RUNTIME) $(shell find app/client -name '*.py' -o -name '*.toml' -o -name '*.md')
	rm -rf build/client
	$(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/client ./app/client
	$(PIP) install --no-deps --no-index --force-reinstall build/client/*.whl
	@touch $@

serve: install  ## start the service on its defaults, with a place for datasets
	@mkdir -p thalweg-datasets
	$(BIN)/thalweg-server serve --dataset-roots thalweg-datasets

demo: $(RUNTIME)  ## the service, a connection that keeps breaking, and a table that is complete
	@$(AT_ONCE) --jobs=3 install $(PLOT)
	@PATH="$(CURDIR)/$(BIN):$$PATH" bash deploy/demo.sh

# What makes the site: Sphinx and its theme.
$(DOCS): $(RUNTIME) deploy/requirements-docs.lock
	$(PIP) install --no-compile --require-hashes -r deploy/requirements-docs.lock
	@touch $@

docs: install $(PLOT) $(DOCS)  ## the documentation as a site: in build/docs, and served below /docs/
	$(BIN)/python -m deploy.docs

# No process of a test multiplies matrices: the threads for it take a quarter of numpy's import.
unit nojit: export OPENBLAS_NUM_THREADS := 1

# What needs no kernels does not wait for them.
test: $(RUNTIME)  ## everything CI checks
	@$(AT_ONCE) --output-sync=target --jobs=2 ON_CORES= unit checks

# One process beside those of the suite, which often wait for servers.
checks: $(TOOLS)
	@for target in lint nojit; do $(MAKE) --no-print-directory $$target || exit; done

fmt: $(TOOLS)  ## format the code, put imports in order, write the blocking client anew
	$(BIN)/ruff check --fix --exit-zero --quiet .
	$(BIN)/ruff format .
	$(BIN)/python deploy/unasync.py

lint: $(TOOLS)  ## format, lint, types, import directions, amount of code, the blocking client made anew
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python deploy/unasync.py --check
	$(BIN)/python deploy/check_types.py
	$(BIN)/python deploy/weigh.py --check
	$(BIN)/lint-imports

unit: $(TOOLS) install  ## the test suite as users run the code
	$(BIN)/python -m pytest $(SIDE_BY_SIDE)

# Compiled with little optimisation: an index is wrong or right without it.
BOUNDS := NUMBA_BOUNDSCHECK=1 NUMBA_OPT=1

bounds: $(TOOLS)  ## the engine's tests, compiled with every array index checked
	$(BOUNDS) $(BIN)/thalweg-server warmup
	$(BOUNDS) $(BIN)/python -m pytest $(ON_CORES) $(ENGINE)

# Checks every array index too, as numpy does, and needs no kernels.
nojit: $(TOOLS)  ## the engine's tests as plain Python
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest $(ON_CORES) $(ENGINE)

coverage: install $(TOOLS)  ## which lines and branches no test runs, over all runs and their processes
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest $(SIDE_BY_SIDE)
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run -m pytest $(ON_CORES) $(ENGINE)
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --fail-under=95

soak: install bounds  ## the full counts: bounds, more examples, fuzzing, 80,000 damaged files, ten minutes of abuse
	THALWEG_SOAK=1 $(BIN)/python -m pytest
	$(BIN)/python -m tests.fuzz.fuzz_losses --seconds 600
	$(BIN)/python -m tests.fuzz.fuzz_http --seconds 600
	$(BIN)/python -m tests.fuzz.fuzz_files --cases 20000
	$(BIN)/python -m tests.abuse --seconds 600
	$(BIN)/python -m tests.durable --kills 100 --cuts 1000 $(if $(THALWEG_TUS_PYTHON),--peer $(THALWEG_TUS_PYTHON))
	$(BIN)/python -m tests.durable --lanes --kills 1000 --cuts 0 --mib 2

TORCH := $(if $(THALWEG_TORCH_PYTHON),$(THALWEG_TORCH_PYTHON),$(VENV)-torch/bin/python)

$(VENV)-torch/bin/python: deploy/requirements-torch.txt
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/pip install --quiet --disable-pip-version-check -r deploy/requirements-torch.txt
	@touch $@

test-torch: $(TORCH)  ## the client under PyTorch, in an environment of its own
	$(TORCH) -m pytest --confcutdir=tests/torch tests/torch

# 130 portfolios are 104 of items and 26 of summaries: more than 100 for every family of reports.
CASES ?= 130
PEER := $(if $(THALWEG_PEER_PYTHON),$(THALWEG_PEER_PYTHON),$(VENV)-oasis/bin/python)

oasis: install $(TOOLS) $(PEER)  ## all reports against the peer's tools, on random portfolios (CASES=3 to try)
	$(BIN)/python -m tests.compat.oasis --peer $(PEER) --cases $(CASES)
	$(MAKE) --no-print-directory oasis-runs

oasis-runs: install $(TOOLS) $(PEER)  ## real runs of a model by oasislmf: outputs, cost and faults
	$(BIN)/python -m tests.oasis.model_runs --peer $(PEER)
	$(BIN)/python -m tests.oasis.model_runs --peer $(PEER) --measure --scale 20 --times 1
	rm -rf build/model-faults
	$(BIN)/python -m tests.oasis.model_runs --peer $(PEER) --work build/model-faults --faults 50 --modes runner,shims,plain

$(VENV)-oasis/bin/python: deploy/requirements-oasis.txt
	$(PYTHON) -m venv $(VENV)-oasis
	$(VENV)-oasis/bin/pip install --quiet --disable-pip-version-check -r deploy/requirements-oasis.txt
	@touch $@

# Object stores that run here, in an environment of their own, as they bring half of AWS's libraries.
OBJECTS := $(if $(THALWEG_OBJECTS_PYTHON),$(THALWEG_OBJECTS_PYTHON),$(VENV)-objects/bin/python)

$(VENV)-objects/bin/python: deploy/requirements-objects.txt
	$(PYTHON) -m venv $(VENV)-objects
	$(VENV)-objects/bin/pip install --quiet --disable-pip-version-check -r deploy/requirements-objects.txt
	@touch $@

nodes: install $(TOOLS) $(OBJECTS)  ## several nodes on Postgres and on object stores: suites, kills, cuts
	@if command -v npm > /dev/null; then npm install --silent --no-audit --no-fund --prefix $(VENV)-node azurite@3.37.0; fi
	THALWEG_AZURITE=$$(ls $(VENV)-node/node_modules/.bin/azurite-blob 2> /dev/null) \
		THALWEG_OBJECTS_PYTHON=$(OBJECTS) $(BIN)/python -m pytest -q tests/app/state/test_object_servers.py \
		tests/app/state/test_postgres.py tests/app/datasets/test_bucket_servers.py tests/cancellation/test_buckets.py tests/e2e/test_nodes.py
	THALWEG_OBJECTS_PYTHON=$(OBJECTS) $(BIN)/python -m tests.durable --replicas 2 --kills 84 --cuts 100 --mib 4
	THALWEG_OBJECTS_PYTHON=$(OBJECTS) $(BIN)/python -m tests.durable --replicas 3 --kills 72 --cuts 100 --mib 4

# Helm as a library, and the schemas of Kubernetes, in an environment of their own. Those of custom
# resources are in packages of Node, and left out where that is missing.
$(VENV)-kubernetes/bin/python: deploy/requirements-kubernetes.txt
	$(PYTHON) -m venv $(VENV)-kubernetes
	$(VENV)-kubernetes/bin/pip install --quiet --disable-pip-version-check -r deploy/requirements-kubernetes.txt
	@touch $@

kubernetes: $(RUNTIME) $(TOOLS) $(VENV)-kubernetes/bin/python  ## the Helm chart: lint, renderings, strict schemas
	@if command -v npm > /dev/null; then \
		npm install --silent --no-audit --no-fund --prefix $(VENV)-kubernetes \
			@kubernetes-models/gateway-api@2.0.0 @kubernetes-models/prometheus-operator@6.0.0; fi
	THALWEG_KUBERNETES_PYTHON=$(VENV)-kubernetes/bin/python THALWEG_NODE_MODULES=$(VENV)-kubernetes/node_modules \
		$(BIN)/python -m pytest -q tests/contract/test_kubernetes.py

# Libraries that open doors to the service, in an environment of their own.
DOORS := $(if $(THALWEG_DOORS_PYTHON),$(THALWEG_DOORS_PYTHON),$(VENV)-doors/bin/python)

$(VENV)-doors/bin/python: deploy/requirements-doors.txt $(CLIENT)
	$(PYTHON) -m venv $(VENV)-doors
	$(VENV)-doors/bin/pip install --quiet --disable-pip-version-check -r deploy/requirements-doors.txt
	$(VENV)-doors/bin/pip install --quiet --disable-pip-version-check --no-deps --force-reinstall build/client/*.whl
	@touch $@

IN_BROWSER := THALWEG_BROWSER=1 THALWEG_AXE=$(VENV)-node/node_modules/axe-core/axe.min.js $(BIN)/python -m pytest -q

interop: install $(TOOLS) $(DOORS) $(TORCH) docs  ## uploads by Node and Chromium; notebooks, recipes, plugins, a tutorial under PyTorch
	@command -v npm > /dev/null || { echo "Node is missing: apt-get install nodejs npm chromium"; exit 1; }
	npm install --silent --no-audit --no-fund --prefix $(VENV)-node tus-js-client@4.3.1 \
		@uppy/core@6.3.1 @uppy/tus@6.0.0 esbuild@0.28.2 axe-core@4.10.3
	$(IN_BROWSER) tests/app/runs/test_uploading_page.py tests/interop/console
	THALWEG_DOORS_PYTHON=$(DOORS) $(BIN)/python -m pytest -q tests/examples
	THALWEG_TORCH_PYTHON=$(abspath $(TORCH)) $(BIN)/python -m pytest -q tests/docs/test_tutorials.py -k torch
	$(DOORS) -m npe2 validate app/client/doors/napari.yaml
	$(BIN)/python -m tests.interop.javascript --modules $(VENV)-node/node_modules

browser: $(TOOLS)  ## every page in Chromium, where it is: looks, keyboard, axe where npm brought it
	$(IN_BROWSER) --exitfirst tests/interop/console/test_every_page.py

mutants: $(TOOLS)  ## change 200 places that guard data, and see that tests notice
	$(BIN)/python -m tests.mutants

bench: install $(TOOLS)  ## speeds, as ratios within one run (THALWEG_*_PYTHON add the peers)
	$(BIN)/python -m tests.bench

audit: $(RUNTIME)  ## known vulnerabilities of the locked versions, where they can be looked up
	@$(BIN)/python deploy/audit.py

lock:  ## renew the locked versions (needs uv on the PATH)
	uv pip compile pyproject.toml --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --output-file deploy/requirements.lock
	uv pip compile pyproject.toml --extra plot --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --constraint deploy/requirements.lock \
		--output-file deploy/requirements-plot.lock
	uv pip compile pyproject.toml --extra dask --extra hdf5 --extra objectstore --extra otel --extra plot --extra postgres --extra zarr --universal --python-version 3.11 \
		--generate-hashes --no-header --no-annotate --no-emit-index-url \
		--constraint deploy/requirements-plot.lock --output-file deploy/requirements-image.lock
	uv pip compile --group pip --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --output-file deploy/requirements-pip.lock
	uv pip compile --group build --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --output-file deploy/requirements-build.lock
	uv pip compile pyproject.toml --group dev --no-strip-extras --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --constraint deploy/requirements-image.lock --constraint deploy/requirements-build.lock \
		--output-file deploy/requirements-dev.lock
	uv pip compile --group docs --universal --python-version 3.11 --generate-hashes \
		--no-header --no-annotate --no-emit-index-url --constraint deploy/requirements-dev.lock \
		--output-file deploy/requirements-docs.lock

clean:  ## remove what was built here
	rm -rf app/http/site.zip $(VENV) $(VENV)-torch $(VENV)-oasis $(VENV)-objects $(VENV)-kubernetes $(VENV)-doors $(VENV)-node build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .coverage .coverage.*
