# `make help` lists what there is. Every target sets up what is missing, once.
SHELL := /bin/bash
BIN := .venv/bin
DEMO := configs/demo.yaml
SCRIPTS := scripts/*.sh .ci/run

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check format lock clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## Make or mend the environment in .venv
	@scripts/setup.sh

demo: setup ## Python's standard library -> tokenizer -> trained model -> registry -> a sample (about 6 minutes)
	@$(BIN)/tokenmill ingest --stdlib --out data/demo
	@$(BIN)/tokenmill run --config $(DEMO)
	@$(BIN)/tokenmill generate --config $(DEMO) --prompt 'def read_file(path):' --max-new-tokens 120 --seed 7

test: check ## Lint, types and every test
	@$(BIN)/python -m pytest -q --durations=10

test-fast: setup ## The tests that take seconds
	@$(BIN)/python -m pytest -q -m 'not slow'

check: setup ## Lint, format, types, and the shell scripts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make format"; exit 1; }
	@$(BIN)/mypy
	@$(BIN)/shellcheck $(SCRIPTS)

format: setup ## Format the code and mend what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: setup ## Refresh the locks from pyproject.toml (UPGRADE=1: to the newest versions that fit)
	@scripts/lock.sh $(if $(UPGRADE),--upgrade)

clean: ## Remove the demo's data, runs and models, and caches
	rm -rf data/demo runs/demo registry/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -path ./.venv -prune -o -path ./.setup -prune -o -path ./.runtime -prune -o \
	  -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## Remove the environment, too
	rm -rf .venv .runtime .setup *.egg-info third_party/*/*.egg-info
