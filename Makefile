# Needs Python 3.11 and make; everything else is put into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin

.PHONY: demo test test-slow lint clean

demo: .venv/.runtime
	$(BIN)/python -m tools.demo --output_dir=demo_output

test: .venv/.development
	$(BIN)/python -m pytest -m "not slow"

test-slow: .venv/.development
	$(BIN)/python -m pytest -m slow

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

clean:
	rm -rf .venv demo_output .pytest_cache .ruff_cache .hypothesis
