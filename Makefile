# Everything here works from a bare clone: each target makes .venv first, which needs Python 3.10 or
# later with its venv module and a C++20 compiler. PYTHON and CXX choose others than the default ones.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Younger than both files of requirements: .venv holds what they ask for.
INSTALLED := $(VENV)/.installed

CXX_SOURCES := find src tests tools examples benchmarks -name '*.cpp' -o -name '*.h'

.DEFAULT_GOAL := help
.PHONY: help demo test lint bench clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    train a small network on the simulated accelerator and on the CPU, side by side'
	@echo 'make test    run the tests'
	@echo 'make lint    ruff, mypy --strict, clang-format'
	@echo 'make bench   run every benchmark'
	@echo 'make clean   remove .venv and what the tools left behind (built backends stay in their cache)'

demo: $(INSTALLED)
	$(BIN)/opsmith demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -q

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(CXX_SOURCES) | xargs $(BIN)/clang-format --dry-run -Werror

bench: $(INSTALLED)
	$(BIN)/opsmith bench --strict

clean:
	rm -rf $(VENV) build dist demo.png .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(INSTALLED): requirements-dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { \
	  echo 'error: opsmith needs Python 3.10 or later, but `$(PYTHON)` is missing or older' >&2; \
	  echo '  remedy: apt-get install python3 python3-venv, or name another: make $(MAKECMDGOALS) PYTHON=python3.11' >&2; \
	  exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo 'error: `$(PYTHON)` has no venv module' >&2; \
	  echo '  remedy: apt-get install python3-venv (Debian, Ubuntu)' >&2; \
	  exit 1; }
	@for compiler in "$${CXX:-}" c++ g++ clang++; do \
	  if test -n "$$compiler" && command -v $$compiler >/dev/null; then exit 0; fi; \
	done; \
	  echo 'error: no C++ compiler was found' >&2; \
	  echo '  remedy: apt-get install g++ (Debian, Ubuntu) or dnf install gcc-c++ (Fedora); or set CXX' >&2; \
	  exit 1
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -r requirements-dev.txt
	$(BIN)/python -m pip install --disable-pip-version-check --no-build-isolation --no-deps -e .
	@touch $@
