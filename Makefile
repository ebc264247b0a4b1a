# make run    installs what is missing and serves the app
# make test   installs what is missing and passes the tests
# make quick  passes the tests that one wants after each edit: in a minute, without a browser
# make soak   does 100,000 random operations on the engine, each of them checked
# make check  ruff and mypy
# make pictures  draws the pictures of the README from the running app, in Chromium
# make bench  measures this machine's NVIDIA GPU and writes benchmarks/measured.json
# make bench-engine  measures the block manager's bookkeeping, which needs no GPU
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The browser tests come first: they are the longest files, and most of what they take is waiting.
TOGETHER := -n auto --maxprocesses 8 --dist loadfile --no-loadscope-reorder

.PHONY: run test quick soak check bench bench-engine pictures clean

run: $(VENV)/run.stamp
	$(BIN)/streamlit run app.py

test: $(VENV)/dev.stamp
	$(BIN)/python -m tests.chromium
	$(BIN)/python -m pytest $(TOGETHER)

quick: $(VENV)/dev.stamp
	$(BIN)/python -m pytest $(TOGETHER) -m "not slow and not gpu" --ignore tests/browser --ignore tests/kernels

soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.soak

check: $(VENV)/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: $(VENV)/run.stamp
	$(BIN)/python -m benchmarks

bench-engine: $(VENV)/run.stamp
	$(BIN)/python -m benchmarks.engine

pictures: $(VENV)/dev.stamp
	$(BIN)/python -m tests.chromium
	$(BIN)/python -m docs.pictures

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "pagedviz needs Python 3.11 or newer; this is " + sys.version.split()[0])'
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements.txt
	touch $@

$(VENV)/dev.stamp: requirements-dev.txt requirements.txt | $(BIN)/python
	$(BIN)/python -m pip install --disable-pip-version-check -q -r requirements-dev.txt
	touch $@ $(VENV)/run.stamp

clean:
	rm -rf $(VENV)
