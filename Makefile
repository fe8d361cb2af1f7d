PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help install demo test lint crash-test bench-engine bench-files client-matrix handshake install-size promises clean

help:            ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

install: $(VENV)/.installed ## make .venv with everything, the embedding model included
	$(BIN)/commonplace model pull

demo: install    ## write memories through the library and the CLI, and search them by meaning
	$(BIN)/python examples/demo.py

test: install lint ## every quick test
	$(BIN)/commonplace model pull all-MiniLM-L6-v2
	$(BIN)/commonplace model pull bge-small-en-v1.5
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

crash-test: install ## kill a writer at many points; nothing acknowledged may be lost
	$(BIN)/python scripts/crash_test.py $(CRASH_TEST_ARGS)

bench-engine: install ## speed and size of the engine, beside bare SQLite
	$(BIN)/python benchmarks/engine.py

bench-files: install ## the tree of files at 1,000 and 100,000 files
	$(BIN)/python benchmarks/files.py

client-matrix: install ## real MCP clients, from the registries, against our server
	$(BIN)/python scripts/client_matrix.py

handshake: install ## how long an MCP client waits for initialize, beside a bare server
	$(BIN)/python scripts/handshake_time.py

install-size:    ## what a base install weighs, in a fresh virtual environment
	$(PYTHON) scripts/install_size.py

promises: install ## what the project promises, by seed, and the tests that show it
	$(BIN)/python scripts/promises.py

clean:
	rm -rf $(VENV) .clients build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
