# Everything here works from a bare clone: each target makes .venv first, which needs Python 3.10 or
# later with its venv module and a C++20 compiler. PYTHON and CXX choose others than the default ones.

PYTHON ?= python3
# Another torch than the pinned one, in an environment of its own: make test TORCH=2.15.0
TORCH ?=
VENV := .venv$(TORCH:%=-%)
BIN := $(VENV)/bin
# Younger than the files of requirements: .venv holds what the demo asks for, and what all the rest does.
DEMO_INSTALLED := $(VENV)/.demo-installed
INSTALLED := $(VENV)/.installed

PIP := $(BIN)/python -m pip install --disable-pip-version-check
# Two processes; tests/conftest.py says which tests share one.
WORKERS := -n 2 --dist loadscope --no-loadscope-reorder

# Set, it has every process of the tests compile the Python sources of opsmith and of all it imports.
unexport PYTHONDONTWRITEBYTECODE

# What PyTorch's annotations say of its operators is narrower than what they take; tests call them with all of it.
TESTS_MAY := $(addprefix --disable-error-code=,arg-type call-arg call-overload func-returns-value list-item misc \
  operator union-attr)

CXX_SOURCES := find src tests tools examples benchmarks -name '*.cpp' -o -name '*.h'
# What includes none of PyTorch's headers: the drivers, and kernels on lean tensors.
LEAN_SOURCES := find src/opsmith/drivers src/opsmith/kernels -name '*.cpp' -not -path '*/meta/*' \
  -not -path '*/simd/*' -not -path '*/compute/*' | xargs grep -LE '\#include (<(ATen|c10|opsmith|torch)/|"../common/nvidia)'
LEAN_FLAGS := from opsmith.build.etensor_headers import own_headers; \
  from opsmith.build.flags import lean_flags; \
  from opsmith.build.toolchain import find_torch; \
  print(*lean_flags(), *(f"-isystem{folder}" for folder in own_headers(find_torch()).include_dirs))

# The driver's tests expect SIGSEGV where the host touches the device's memory, and Python leaks on purpose.
SANITIZED := OPSMITH_CACHE_DIR=$(CURDIR)/build/sanitized ASAN_OPTIONS=detect_leaks=0:handle_segv=0 \
  CXX="g++ -g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined" \
  LD_PRELOAD="$$(g++ -print-file-name=libasan.so) $$(g++ -print-file-name=libubsan.so)"

# Writes to .venv what a file of requirements asks for, with the torch that is wanted: ExecuTorch, and torchao,
# which quantizes programs for it, are for 2.13 and later; builds of torch for CUDA have a Triton of their own.
OLD_TORCH := $(filter 2.9.% 2.10.% 2.11.% 2.12.%,$(TORCH))
required = sed -e '$(TORCH:%=s/^torch==.*/torch==%/)' -e '$(TORCH:%=/^triton==/d)' -e '$(if $(OLD_TORCH),/^executorch==/d;/^torchao==/d)' \
  $(1) > $(VENV)/$(1)

BENCHMARKS := $(notdir $(basename $(wildcard benchmarks/[!_]*.py)))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-fast format lint tidy sanitize bench docs dist clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo        train a small network on the simulated accelerator and on the CPU, side by side'
	@echo 'make test        run the tests: everything that guards behaviour; TORCH=2.15.0 has them run on that torch'
	@echo 'make test-fast   those that compile nothing, in a minute'
	@echo 'make test-all    the nightly ones too, with every group of operators, and sim without its host window'
	@echo 'make format      ruff and clang-format lay out what make lint checks'
	@echo 'make lint        ruff, mypy, clang-format'
	@echo 'make tidy        clang-tidy on the drivers and the kernels on lean tensors'
	@echo 'make sanitize    sim'\''s driver, and a small backend with all of the runtime, with AddressSanitizer and UBSan'
	@echo 'make docs        build the site of docs/ in build/site, strictly: a link that leads nowhere fails it'
	@echo 'make bench       run every benchmark, and write the tables of docs/ from what they measure'
	@echo 'make dist        build the sdist and the wheel, and use the wheel where there is nothing else'
	@echo 'make clean       remove .venv and what the tools left behind (built backends stay in their cache)'

demo: $(DEMO_INSTALLED)
	$(BIN)/opsmith demo

test: $(INSTALLED)
	$(BIN)/python -m pytest -q $(WORKERS)

# Whatever would compile unseen fails for want of a compiler.
test-fast: $(INSTALLED)
	CXX=/nonexistent/compiler $(BIN)/python -m pytest -q -m 'not nightly and not compiles'

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -q -m '' $(WORKERS)
	OPSMITH_HOST_WINDOW=off $(BIN)/python -m pytest -q $(WORKERS) tests/runtime/test_*.py tests/kernels tests/conformance tests/programs

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(CXX_SOURCES) | xargs $(BIN)/clang-format -i

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict src
	$(BIN)/mypy $(TESTS_MAY) tests
	$(CXX_SOURCES) | xargs $(BIN)/clang-format --dry-run -Werror

tidy: $(INSTALLED)
	flags="$$($(BIN)/python -c '$(LEAN_FLAGS)') -std=c++20 -Isrc/opsmith -Isrc/opsmith/csrc -Isrc/opsmith/csrc/include"; \
	$(LEAN_SOURCES) | xargs -n 1 -P 2 sh -c "$(BIN)/clang-tidy --quiet \"\$$0\" -- $$flags"

sanitize: $(INSTALLED)
	$(SANITIZED) $(BIN)/python -m pytest -q tests/runtime/test_sim_driver.py tests/docs/test_docs.py \
	  -k 'sim_driver or (blocks and structured)'

# A missed goal fails it after the last benchmark.
bench: $(INSTALLED)
	status=0; for name in $(BENCHMARKS); do \
	  $(BIN)/opsmith bench $$name --strict --output benchmarks/results/$$name.json || status=1; \
	done; \
	$(BIN)/python tools/performance_tables.py && exit $$status

# The generator warns that it has a successor: mkdocs.yml says why it is not that yet.
docs: .venv-docs/.installed
	NO_MKDOCS_2_WARNING=1 PYTHONPATH=src .venv-docs/bin/mkdocs build --strict

# The wheel is made of the sdist, in an environment that has hatchling alone.
dist: .venv-dist/.installed
	rm -rf dist
	.venv-dist/bin/python -m build
	.venv-dist/bin/twine check --strict dist/*
	PYTHON=$(PYTHON) tools/try_wheel dist/*.whl

clean:
	rm -rf .venv .venv-* build dist demo.png .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src tests tools benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(DEMO_INSTALLED): requirements-demo.txt pyproject.toml
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
	$(call required,requirements-demo.txt)
	$(PIP) -r $(VENV)/requirements-demo.txt
	$(PIP) --no-build-isolation --no-deps -e .
	@touch $@

$(INSTALLED): $(DEMO_INSTALLED) requirements-dev.txt
	$(call required,requirements-dev.txt)
	$(PIP) -r $(VENV)/requirements-dev.txt
	@touch $@

# The site and the distributions are built in environments of their own, without torch.
.venv-%/.installed: requirements-%.txt
	$(PYTHON) -m venv .venv-$*
	.venv-$*/bin/python -m pip install --disable-pip-version-check -r $<
	@touch $@
