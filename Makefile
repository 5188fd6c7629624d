PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

help: ## what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

setup: $(VENV)/.installed .types ## build .venv with everything that the demo and the tests need

$(VENV)/.installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

# an editable install maps names by an import hook, which type checkers cannot follow; these links they can
.types: Makefile
	mkdir -p .types/expunge
	for d in models tasks worker; do ln -sfn ../../$$d .types/expunge/$$d; done
	touch .types

demo: setup ## a whole erasure case on this machine: local S3, local provider, receipts
	$(BIN)/expunge demo

test: setup ## everything, with real servers started by the tests
	$(BIN)/python -m pytest -n 3 --dist worksteal

test-rgw: setup ## the S3 tests on a Ceph RGW, where radosgw, ceph-mon, ceph-osd and ceph-common are installed
	EXPUNGE_TEST_RGW=1 $(BIN)/python -m pytest -n0 tests/integration/test_s3_ordinary.py tests/integration/test_s3_uploads.py \
	  tests/integration/test_cases_s3.py tests/integration/test_s3_listing_orders.py -k rgw

chaos: setup ## the long round of tests/chaos and the state machines: CHAOS_ROUNDS=20 of them from CHAOS_SEED (by default, the time); BAD_DAYS_ENTRIES=50000 for the bad days
	CHAOS_ROUNDS=$${CHAOS_ROUNDS:-20} CHAOS_SEED=$${CHAOS_SEED:-$$(date +%s)} \
	  $(BIN)/python -m pytest tests/chaos tests/integration/test_state_machine*.py tests/integration/test_purge_graphs.py -n 2 --dist worksteal

unit: setup ## the tests that need no server: seconds
	$(BIN)/python -m pytest tests/unit

lint: setup ## ruff and mypy strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup ## let ruff format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup ## the benchmarks, each beside its reference: minutes, and a quiet machine
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[bench]'
	for name in bad_days drain fence latency memory purge s3; do $(BIN)/python benchmarks/$$name.py; done

up: setup ## worker and beat in one process, with ./expunge.toml
	$(BIN)/expunge up

.PHONY: help setup demo test test-rgw chaos unit lint format bench up
.DEFAULT_GOAL := help
