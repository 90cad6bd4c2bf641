# Every target prepares its own environment and skips what is ready. A fresh clone needs python3, pip and make.
PYTHON ?= python3
ARGS ?=
VENV := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help run check test web types browsers lint format bench soak rules lock clean

help: ## list the targets
	@echo "make run     set up and start Easel (API, worker, UI); ARGS=\"--port 9000\""
	@echo "make check   lint, types and the fast tests of core, host, stores and edges (under 3 minutes)"
	@echo "make test    the whole suite (under 20 minutes); ARGS=\"-k cancel\" selects tests"
	@echo "make web     build the TypeScript of web/ into src/easel/ui/ (needs Node)"
	@echo "make browsers  the drills of canvas pages on Debian's oldest and newest Chromium and on Firefox ESR"
	@echo "make types   print TypeScript's types of the wire into web/src"
	@echo "make lint    ruff and basedpyright only; once make test has run, also biome and tsc"
	@echo "make format  format and sort imports with ruff and biome"
	@echo "make bench   ratios against floors and peers, measured in one run; ARGS selects some"
	@echo "make soak    the long fault drills at full length (SOAK_SECONDS=600)"
	@echo "make rules   which rules and fault cases have a test"
	@echo "make lock    regenerate the hashed locks; ARGS=--upgrade takes newer versions"
	@echo "make clean   remove environments and caches; your data stays"

run:
	@$(PYTHON) scripts/prepare.py runtime
	@exec $(VENV)/easel up --demo $(ARGS)

check:
	@$(PYTHON) scripts/prepare.py test-python
	@exec $(VENV)/python scripts/run_tests.py check -- $(ARGS)

test:
	@$(PYTHON) scripts/prepare.py test
	@exec $(VENV)/python scripts/run_tests.py all -- $(ARGS)

web:
	@$(PYTHON) scripts/prepare.py web
	@exec $(VENV)/python scripts/web.py build

browsers:
	@$(PYTHON) scripts/prepare.py browsers
	@exec $(VENV)/python scripts/run_tests.py browsers -- $(ARGS)

lint:
	@$(PYTHON) scripts/prepare.py test-python
	@exec $(VENV)/python scripts/run_tests.py lint

format:
	@$(PYTHON) scripts/prepare.py test-python
	@$(VENV)/ruff check --quiet --fix . ; $(VENV)/ruff format .
	@$(VENV)/python scripts/web.py format

types:
	@$(PYTHON) scripts/prepare.py test-python
	@$(VENV)/python scripts/wire_types.py

bench:
	@$(PYTHON) scripts/prepare.py bench
	@exec .venv-bench/bin/python -m bench $(ARGS)

SOAK_SECONDS ?= 600
soak:
	@$(PYTHON) scripts/prepare.py test
	@EASEL_SOAK_SECONDS=$(SOAK_SECONDS) exec $(VENV)/python scripts/run_tests.py soak -- $(ARGS)

rules:
	@$(PYTHON) -m tests.requirements $(ARGS)

lock:
	@$(PYTHON) scripts/prepare.py lock
	@UV=$(CURDIR)/.venv-lock/bin/uv scripts/lock.sh $(ARGS)

clean:
	rm -rf .venv .venv-bench .venv-lock .browsers build dist .pytest_cache .ruff_cache .hypothesis .test-results web/node_modules src/*.egg-info
	find src tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} +
