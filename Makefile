# What people and CI run. `make` alone lists it. Needs python3 >= 3.11 with venv, and nothing else.
#   TORCH=cpu    take torch from PyTorch's own CPU index, where the registry gives a CUDA build
#   DEMO=once    the demo exits when its table is printed
#   ARGS=...     passed on to pytest, to `serai serve`, or to the benchmark

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip
EXTRAS := starter,docs,gliner,onnx,audio,cuda,otel
TORCH_INDEX := $(if $(filter cpu,$(TORCH)),--index-url https://download.pytorch.org/whl/cpu)

# One thread a slot, and two arenas: what the server sets for itself, set for tests and benchmarks too.
QUIET := OMP_NUM_THREADS=1 MALLOC_ARENA_MAX=2
OFFLINE := HF_HUB_OFFLINE=1 $(QUIET)

help:
	@echo "make setup | serve | demo | test | lint | types | audit | check | bench | docs | licences | clean"

setup: .venv/starter.stamp

# Torch goes first and alone: an index for it must not be searched for anything else.
.venv/torch.stamp: constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("Serai needs Python 3.11 or newer" if sys.version_info < (3, 11) else 0)'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet --upgrade "pip>=25.1"
	$(PIP) install --quiet -c constraints.txt $(TORCH_INDEX) torch
	touch $@

# The client's metadata asks for Python 3.12; its code runs on 3.11. What it needs is in the group dev.
.venv/packages.stamp: .venv/torch.stamp pyproject.toml constraints.txt
	$(PIP) install --quiet -c constraints.txt --editable ".[$(EXTRAS)]" --group dev
	$(PIP) install --quiet --ignore-requires-python --no-deps sie-sdk==0.10.1
	touch $@

.venv/starter.stamp: .venv/packages.stamp engine/sources/starter.txt
	$(PIP) install --quiet --no-deps --require-hashes -r engine/sources/starter.txt
	touch $@

serve: setup
	$(BIN)/serai serve $(ARGS)

demo: setup
	DEMO=$(DEMO) $(BIN)/serai demo $(ARGS)

# In two processes, but for what measures the machine. 5 is pytest's word for ARGS that name no such test.
test: setup
	$(OFFLINE) $(BIN)/python -m tests.weights
	$(OFFLINE) $(BIN)/python -m pytest -m "not alone" --numprocesses 2 --dist loadfile $(ARGS) || test $$? = 5
	$(OFFLINE) $(BIN)/python -m pytest -m alone $(ARGS) || test $$? = 5

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

# What is known against the versions in use. Where nobody can be asked, that is printed and no failure.
audit: setup
	$(BIN)/python -m tests.audit

check: lint types audit test

bench: setup
	$(OFFLINE) $(BIN)/python -m loadtests.bench $(ARGS)

# Figures of docs/models.md are taken anew by: python -m tests.compared > docs/compared.jsonl
docs: setup
	$(BIN)/serai docs settings > docs/settings.md
	$(BIN)/python -m tests.models_page > docs/models.md

licences: setup
	$(BIN)/python -m tests.licences > docs/licences.md

clean:
	rm -rf dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

.PHONY: help setup serve demo test lint types audit check bench docs licences clean
