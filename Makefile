# Everything here works on a new machine with Python 3.11+, make and access to PyPI; 'make help' lists it.

PYTHON ?= python3
VENV ?= .venv
SWEEP_MINUTES ?= 30

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip --quiet --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help venv demo test lint types imports docs sweep bench ci clean

help: ## show this list
	@echo "make TARGET, with PYTHON=... to choose the interpreter (3.11 or newer)"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name what; do \
		printf '  %-8s %s\n' "$$name" "$$what"; done

venv: $(STAMP) ## set up .venv with refold and everything for developing it

# The stamp is written last: a set-up that was interrupted is done again, one that is complete is left alone.
$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
		found=$$($(PYTHON) --version 2>/dev/null) || found="not there"; \
		echo "refold needs Python 3.11 or newer, and '$(PYTHON)' is $$found; name another: make PYTHON=python3.12" >&2; \
		exit 2; }
	@echo "setting up $(VENV) (once)"
	@$(PYTHON) -m venv --clear $(VENV) || { \
		echo "the module venv does not work here; on Debian: apt install python3-venv" >&2; exit 2; }
	@$(PIP) install --editable '.[dev]'
	@touch $(STAMP)

demo: $(STAMP) ## kill a writer in mid-run, restore it, prove it identical
	@$(BIN)/refold demo

test: lint types imports ## lint, types, imports and all tests, a slice of each sweep among them
	@HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-ci} $(BIN)/python -m pytest -n auto

lint: $(STAMP) ## ruff: rules and format
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .

types: $(STAMP) ## mypy, strict
	@$(BIN)/mypy

imports: $(STAMP) ## import-linter: imports point one way
	@$(BIN)/lint-imports

docs: $(STAMP) ## write FORMAT.md, ERRORS.md and SCHEMA.md in engine/ anew from the code
	@$(BIN)/python -m engine.app.docs

sweep: $(STAMP) ## kill, cut, flip, interrupt for SWEEP_MINUTES in all (default 30), from where the last one stopped
	@$(BIN)/python -m tests.sweeps --minutes $(SWEEP_MINUTES)

bench: $(STAMP) ## refold bench: ratios against raw floors and other libraries
	@$(PIP) install --editable '.[bench]' || echo "some peers cannot be installed here; what needs them is not measured" >&2
	@$(BIN)/refold bench

ci: ## exactly what CI runs
	@bash .ci/run

clean: ## remove .venv and what the tools leave behind
	rm -rf $(VENV) build *.egg-info .hypothesis .mypy_cache .ruff_cache .import_linter_cache .sweep
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
