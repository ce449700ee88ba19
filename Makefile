# Everything a developer runs. The virtual environment in .venv is made on first use; a stamp for
# each extra makes later runs start at once, until pyproject.toml changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps

.PHONY: help install demo test stress oldest test-oldest engines lint types docs pages fixtures check clean

help:
	@echo 'make install every extra but gpu, for work on hyperplane'
	@echo 'make demo    size a job, start a cluster on this machine, do the job on real data'
	@echo 'make test    all tests and all examples of the documentation, at small scale'
	@echo 'make stress  tests that have a scale, with more repetitions, larger data and random examples'
	@echo 'make oldest  collections, clusters and storage with the oldest Dask and pandas that are supported'
	@echo 'make engines the engines beyond this machine, with real services (root, Debian packages)'
	@echo 'make lint    ruff: rules and format'
	@echo 'make types   mypy, strict'
	@echo 'make docs    the documentation, into docs/_build/html; warnings are errors'
	@echo 'make pages   write the generated parts of the documentation anew'
	@echo 'make fixtures the files that this version writes, for the tests of later versions'
	@echo 'make check   everything that CI does'
	@echo 'make clean   remove what the other targets made'

# Debian without python3-venv makes environments without pip only; its own pip then adds one.
$(BIN)/python:
	@echo 'making a virtual environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	       && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } \
	  || { rm -rf $(VENV); exit 1; }

$(STAMPS)/%: pyproject.toml | $(BIN)/python
	@echo "installing hyperplane[$*] and what it needs into $(VENV); a minute or two, once"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@mkdir -p $(STAMPS) && touch $@

# Each extra that can share an environment, in one command. PIP: the version of pip that does it.
install: | $(BIN)/python
	$(if $(PIP),$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip==$(PIP)')
	@$(MAKE) --no-print-directory $(STAMPS)/dev
	@touch $(foreach extra,demo test lint docs,$(STAMPS)/$(extra))

demo: $(STAMPS)/demo
	$(BIN)/hyperplane demo

# TESTERS: processes that run test files beside each other; three more than cores, because tests wait.
# conftest.py has the order of the files. Tests start hundreds of interpreters: each must find the
# package compiled, whatever the environment says of bytecode. A process that ends early ends the
# run: pytest-xdist would otherwise repeat the test in another, sixteen times.
TESTERS ?= $(shell expr $$(nproc) + 3)
PYTEST  := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses $(TESTERS) \
  --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 20

test: $(STAMPS)/test
	$(PYTEST) --quiet

# The tests that ask for the scale, by name or through Hypothesis; the others would only repeat.
# SEED: repeats the random examples; without it they are new ones in each run.
stress: $(STAMPS)/test
	HYPERPLANE_TEST_SCALE=full $(PYTEST) --quiet -m 'scaled and not engine' --timeout 1800 -o faulthandler_timeout=2400 $(if $(SEED),--hypothesis-seed $(SEED)) \
	  $$(grep --recursive --files-with-matches --extended-regexp 'from scale import|from hypothesis|from save_contract import' --include 'test_*.py' tests)

# In an environment of its own, because one environment has one Dask.
oldest:
	@PIP_CONSTRAINT=tests/oldest.txt $(MAKE) --no-print-directory VENV=.venv-oldest test-oldest

test-oldest: $(STAMPS)/test
	$(PYTEST) --quiet tests/collections tests/formats tests/clusters tests/storage tests/shards \
	  tests/test_cluster.py tests/core/test_column_cast.py tests/core/test_dask_internals.py

# What is missing is a failure here, not a skip. ENGINES: which; kubernetes builds for long, once.
# ONLY: names of tests, as for pytest -k; ONLY_KUBERNETES: for those of kubernetes.
ENGINES ?= ssh slurm gateway
engines: $(STAMPS)/test
	$(if $(filter-out gateway,$(ENGINES)),scripts/engines/install $(filter-out gateway,$(ENGINES)))
	$(if $(filter kubernetes,$(ENGINES)),scripts/engines/kubernetes_build)
	HYPERPLANE_REQUIRE_SERVICES=1 $(BIN)/python scripts/engines/run_tests.py $(ENGINES) \
	  --only '$(ONLY)' $(if $(ONLY_KUBERNETES),--only-of kubernetes '$(ONLY_KUBERNETES)')

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMPS)/lint
	$(BIN)/mypy

docs: $(STAMPS)/docs
	$(BIN)/sphinx-build -E -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo 'open docs/_build/html/index.html'

pages: $(STAMPS)/test
	$(BIN)/python -m scripts.pages
	$(BIN)/python -m scripts.schema

# Before a release. FORCE=1: in place of those that are there.
fixtures: $(STAMPS)/test
	$(BIN)/python -m scripts.compat.fixtures $(if $(FORCE),--force)

check:
	bash .ci/run

clean:
	rm -rf $(VENV) .venv-oldest build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
