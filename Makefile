# make run    install what this machine needs and tune vLLM on it
# make test   the same, then the checks and tests; make test-all adds the tests that take minutes each
VENV ?= .venv
MODEL ?=
ARGS ?= --gpu auto --objective throughput --budget 6m --out runs/demo

.PHONY: install run test test-all check format clean

install:
	@VENV=$(VENV) scripts/install auto

run: install
	$(VENV)/bin/autotune run $(MODEL) $(ARGS)

# Some tests measure times; what fails on a busy moment gets one more run, alone, and must pass then.
test: check
	$(VENV)/bin/python -m pytest || $(VENV)/bin/python -m pytest --last-failed --last-failed-no-failures none

test-all: check
	$(VENV)/bin/python -m pytest -m ""

check: install
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: install
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:
	rm -rf $(VENV) build dist runs *.egg-info scripts/vllm-shim/build scripts/vllm-shim/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
