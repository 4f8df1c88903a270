# `make help` lists what there is. Every target sets up what is missing, once.
SHELL := /bin/bash
BIN := .venv/bin
DEMO := configs/demo.yaml

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-fast check format lock clean distclean

help: ## Show this list
	@sed -nE 's/^([a-z-]+):.*## (.*)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|'

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

check: setup ## Lint, format and types
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run make format"; exit 1; }
	@$(BIN)/mypy foundation ingest trainer_module components pipeline runners benchmarks
	@$(BIN)/shellcheck scripts/*.sh .ci/run

format: setup ## Format the code and mend what the linter can
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

lock: setup ## Refresh requirements.lock from pyproject.toml
	@scripts/lock.sh

clean: ## Remove runs, models and data of the demo, and caches
	rm -rf runs registry data/demo .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -not -path './.setup/*' -prune -exec rm -rf {} +

distclean: clean ## Remove the environment, too
	rm -rf .venv .runtime .setup *.egg-info
