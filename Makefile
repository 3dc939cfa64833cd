# Everything starts here. On a fresh machine with Python 3.11 or newer, `make demo` and `make test` need nothing else: uv
# comes through pip, Python packages come as uv.lock names them, and a Java runtime is among them where there is none.

PYTHON ?= python3
BENCH ?= pipeline
ROUNDS ?= 5
STATES ?= 1000000
MINUTES ?= 30
KILLS ?= 300
PYTEST_ARGS ?=
# All cores; tests/support/scheduling.py shares the tests out.
PARALLEL := -n auto
BIN := .venv/bin
STAMP := .venv/.compiled
KERNELS := .venv/.kernels
UV_HOME := .cache/uv
PEERS := .cache/bench-venv
# A uv on the PATH that answers is used; otherwise one of our own, under .cache/.
UV := $(shell uv --version >/dev/null 2>&1 && echo uv || echo $(UV_HOME)/bin/uv)

.DEFAULT_GOAL := help
.PHONY: help setup bytecode kernels demo test lint types format compat bench soak lock clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: kernels ## Make the virtual environment .venv (the other targets do so by themselves)

$(STAMP): pyproject.toml uv.lock | $(filter-out uv,$(UV))
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Penstock needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12"; exit 1; }
	@echo "making .venv (the first time takes a few minutes: Spark is large)"
	@$(UV) sync --frozen --all-extras --compile-bytecode --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

# Where PYTHONDONTWRITEBYTECODE is set, as in many containers, each of a run's processes would compile all that it imports.
bytecode: $(STAMP) ## Compile Python's bytecode (setup, demo and bench do so by themselves)
	@$(BIN)/python -m compileall -q src

kernels: bytecode $(KERNELS) ## Compile the inner loops (setup and demo do so by themselves)

$(KERNELS): $(STAMP)
	@echo "compiling kernels (some seconds, once for each installation)"
	@$(BIN)/python -m penstock.operations.kernels
	@touch $@

$(UV_HOME)/bin/uv:
	@echo "fetching uv into $(UV_HOME)"
	@mkdir -p .cache
	@# A Python without ensurepip (Debian's, split into packages) makes no environment with pip: use its own pip then.
	@{ $(PYTHON) -m venv $(UV_HOME) >/dev/null 2>&1 && $(UV_HOME)/bin/python -m pip install --quiet uv; } || \
		{ rm -rf $(UV_HOME) && $(PYTHON) -m pip install --quiet --target $(UV_HOME) uv; } || \
		{ echo "Neither 'python3 -m venv' nor 'python3 -m pip' works here: install your system's python3-venv or uv"; exit 1; }

demo: kernels ## A small shop's changes from real binlog bytes into verified files, with a kill -9 on the way
	@$(BIN)/penstock demo

test: lint types bytecode ## Everything that must hold: lint, types, and all tests; more random cases with PENSTOCK_BUDGET=ci
	$(BIN)/pytest $(PARALLEL) $(PYTEST_ARGS)

lint: $(STAMP) | $(filter-out uv,$(UV)) ## Style, imports and formatting; that uv.lock belongs to pyproject.toml
	$(UV) lock --check --quiet
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP) ## mypy --strict
	$(BIN)/mypy

format: $(STAMP) ## Put the source into shape
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

compat: $(STAMP) | $(filter-out uv,$(UV)) ## The package in empty environments, with the lowest and the newest versions of what it needs; every Python with PYTHONS=1
	UV=$(UV) $(BIN)/python -m tools.compat $(if $(PYTHONS),pythons,lowest newest)

bench: bytecode $(PEERS)/.synced ## Measure beside a peer, into bench/results.json; one group with BENCH=pipeline, BENCH=running, BENCH=load, BENCH=log, BENCH=state, BENCH=binlog, BENCH=sink or BENCH=verify
	$(BIN)/python -m bench.run $(BENCH)

# The peers live in an environment of their own: nothing of theirs is ever imported by Penstock.
$(PEERS)/.synced: pyproject.toml uv.lock | $(filter-out uv,$(UV))
	UV_PROJECT_ENVIRONMENT=$(PEERS) $(UV) sync --quiet --frozen --only-group bench --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')"
	@touch $@

soak: export PENSTOCK_BUDGET := soak
soak: $(STAMP) ## A million crash states of the log and of its state, a million damaged events (again with bounds checked), all explorations at their largest, a flow under load for MINUTES, KILLS kills of processes and servers under whole flows, and the kill tests ROUNDS times
	$(BIN)/python -m tests.crash log --states $(STATES) --jobs $$(nproc)
	$(BIN)/python -m tests.crash state --states $(STATES) --jobs $$(nproc)
	$(BIN)/pytest $(PARALLEL) -o timeout=14400 --ignore=tests/e2e $(PYTEST_ARGS)
	NUMBA_BOUNDSCHECK=1 $(BIN)/pytest -o timeout=14400 tests/binlog/test_mutations.py $(PYTEST_ARGS)
	$(BIN)/python -m tests.e2e.soak --minutes $(MINUTES)
	$(BIN)/python -m tests.e2e.killed_flow --kills $(KILLS) $(if $(PENSTOCK_SEED),--seed $(PENSTOCK_SEED)) $(if $(FIRST_ROUND),--first-round $(FIRST_ROUND))
	@for round in $$(seq $(ROUNDS)); do echo "round $$round of $(ROUNDS)"; $(BIN)/pytest tests/e2e $(PYTEST_ARGS) || exit 1; done

lock: | $(filter-out uv,$(UV)) ## Bring uv.lock up to pyproject.toml
	$(UV) lock

clean: ## Remove what runs and tests leave behind
	rm -rf .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db derby.log penstock-demo
	find src tests tools bench -name __pycache__ -prune -exec rm -rf {} +

distclean: clean ## And the virtual environment and every download
	rm -rf .venv .cache
