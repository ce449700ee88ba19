# Commands for developers. The first use of a target creates the virtual environment .venv. A stamp
# file for each installed extra avoids further installations until pyproject.toml changes.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMPS := $(VENV)/stamps

.PHONY: help install demo test slow stress chaos oldest test-oldest networks ray spark engines lint audit types docs pages notebooks fixtures check clean

help:
	@echo 'make install install all extras for one environment, to work on hyperplane'
	@echo 'make demo    size a job on real data, start a cluster on this machine and run the job'
	@echo 'make test    run the tests and all examples of the documentation, at small scale, without slow tests'
	@echo 'make slow    run the slow tests: two seconds or more, mostly of waiting'
	@echo 'make stress  run the scaled tests with more repetitions, larger data and random examples'
	@echo 'make chaos   run jobs while processes, connections, clocks and disks fail, for hours'
	@echo 'make oldest  test collections, formats, clusters and storage with the oldest Dask and pandas'
	@echo 'make networks test everything that needs PyTorch or TensorFlow, in a separate environment'
	@echo 'make ray     test everything that needs Ray, in a separate environment'
	@echo 'make spark   test everything that needs Spark, in a separate environment'
	@echo 'make engines test ssh, slurm and gateway with real services (needs root on Debian)'
	@echo 'make lint    check rules and format with ruff, and that no file has a key'
	@echo 'make audit   ask an advisory service about the installed packages (needs a network)'
	@echo 'make types   check types with mypy'
	@echo 'make docs    build the documentation in docs/_build/html; warnings are errors'
	@echo 'make pages   write the generated parts of the documentation'
	@echo 'make notebooks run the notebooks and store their outputs'
	@echo 'make fixtures write files of this version for the tests of later versions'
	@echo 'make check   run everything that CI runs'
	@echo 'make clean   remove the files that the other targets created'

# Debian without python3-venv can only create environments without pip; the system's pip then
# installs pip there.
$(BIN)/python:
	@echo 'creating a virtual environment in $(VENV)'
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	  || { $(PYTHON) -m venv --clear --without-pip $(VENV) \
	       && $(PYTHON) -m pip --python $(BIN)/python install --quiet pip; } \
	  || { rm -rf $(VENV); exit 1; }

$(STAMPS)/%: pyproject.toml | $(BIN)/python
	@echo "installing hyperplane[$*] and its dependencies in $(VENV), which takes a minute or two"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@mkdir -p $(STAMPS) && touch $@

# The extra dev, in one command. PIP: the version of pip to use.
install: | $(BIN)/python
	$(if $(PIP),$(BIN)/python -m pip install --quiet --disable-pip-version-check 'pip==$(PIP)')
	@$(MAKE) --no-print-directory $(STAMPS)/dev
	@touch $(foreach extra,demo test lint docs lab,$(STAMPS)/$(extra))

demo: $(STAMPS)/demo
	$(BIN)/hyperplane demo

# TESTERS: number of parallel test processes; one more than cores, because tests often wait. More
# slow each other down: two cores may be one that runs two threads. conftest.py sets the order of
# the files. Bytecode is always written, because tests start hundreds of interpreters. A test
# process that crashes ends the run: pytest-xdist would otherwise repeat the test in another
# process, sixteen times.
TESTERS ?= $(shell expr $$(nproc) + 1)
PYTEST_OPTIONS = -m pytest --numprocesses $(TESTERS) \
  --dist loadfile --no-loadscope-reorder --max-worker-restart 0 --durations 20
PYTEST  := PYTHONDONTWRITEBYTECODE= $(BIN)/python $(PYTEST_OPTIONS)

test: $(STAMPS)/test
	$(PYTEST) --quiet -m 'not slow and not engine'

# Half of the time of all tests. Files without slow tests are not imported, which takes up to a minute
# in each process.
slow: $(STAMPS)/test
	$(PYTEST) --quiet -m 'slow and not engine' \
	  $$(grep --recursive --files-with-matches --extended-regexp 'slow|_contract import' --include 'test_*.py' tests)

# Only tests that depend on the scale: those with `scaled(...)`, and those of Hypothesis.
# SEED: seed of the random examples; without it each run has new ones. CALLS: the fraction of the
# 10,000 random calls of helpers, which take a quarter of the time. QUICK=1: without tests that are
# marked as slow.
stress: $(STAMPS)/test
	$(if $(CALLS),HYPERPLANE_TEST_CALLS=$(CALLS)) HYPERPLANE_TEST_SCALE=full $(PYTEST) --quiet -m 'scaled and not engine$(if $(QUICK), and not slow)' --timeout 1800 -o faulthandler_timeout=2400 $(if $(SEED),--hypothesis-seed $(SEED)) \
	  $$(grep --recursive --files-with-matches --extended-regexp 'from scale import|from hypothesis|from save_contract import' --include 'test_*.py' tests)

# Random faults and a soak of 10,000 computations at their full length, about three hours.
chaos: $(STAMPS)/test
	HYPERPLANE_CHAOS=full $(BIN)/python -m pytest --quiet --timeout 7200 -o faulthandler_timeout=7200 tests/chaos

# In a separate environment, because an environment has one version of Dask. All checks of dask-ml
# run here, too, for the table of its page. OLDEST: the files and folders of the tests. QUICK=1: without
# tests that are marked as slow.
oldest:
	@PIP_CONSTRAINT=tests/oldest.txt $(MAKE) --no-print-directory VENV=.venv-oldest test-oldest

OLDEST ?= tests/collections tests/formats tests/clusters tests/storage tests/shards tests/ml tests/orca \
  tests/test_cluster.py tests/core/test_column_cast.py tests/core/test_dask_internals.py
test-oldest: $(STAMPS)/test
	$(PYTEST) --quiet $(if $(QUICK),-m 'not slow') $(OLDEST)
	HYPERPLANE_TEST_SCALE=full $(BIN)/python -m pytest --quiet tests/ml/test_dask_ml_patches.py

# In a separate environment, because make test must pass without these packages. It takes all other
# packages from $(VENV) through a .pth file; pip sees them as installed. That needs 40 s and 2.3 GB;
# an environment with another copy of the test packages needs two minutes more.
NETWORKS := .venv-networks
PACKAGES := import sysconfig; print(sysconfig.get_path("purelib"))
$(NETWORKS)/installed: pyproject.toml $(STAMPS)/test
	@echo 'installing PyTorch and TensorFlow in $(NETWORKS), which takes a minute'
	@rm -rf $(NETWORKS) && $(BIN)/python -m venv $(NETWORKS)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
	  > $$($(NETWORKS)/bin/python -c '$(PACKAGES)')/packages.pth
	@$(NETWORKS)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[torch,tensorflow]'
	@touch $@

# A missing package is a failure here, not a skip. The tests are those with the marks of pytest, the
# pages those with a comment such as `needs: torch`. ONLY: an expression for pytest -k. QUICK=1, as in
# CI: without tests that are marked `slow`.
networks: TESTERS = $(shell expr $$(nproc) / 2)# ranks wait for each other, and compute with all cores
networks: $(NETWORKS)/installed
	HYPERPLANE_REQUIRE_NETWORKS=1 PYTHONDONTWRITEBYTECODE= $(NETWORKS)/bin/python $(PYTEST_OPTIONS) --quiet --timeout 900 -m '(torch or tensorflow)$(if $(QUICK), and not slow)' $(if $(ONLY),-k '$(ONLY)') \
	  $$(grep --recursive --files-with-matches --extended-regexp 'mark\.(torch|tensorflow)' --include 'test_*.py' tests) \
	  $$(grep --recursive --files-with-matches --extended-regexp '^<!-- needs: (torch|tensorflow)' --include '*.md' docs)

# As networks, with Ray (10 s and 290 MB to install). SCALED=1, also of spark: only the tests that
# depend on the scale, at full scale. QUICK=1, as in CI: without tests that are marked `slow`, one test
# process for each core, because these tests wait half of the time.
FULL_SCALE = $(if $(SCALED),HYPERPLANE_TEST_SCALE=full)
# A test of many starts takes longer than the limit of pyproject.toml on a slow machine.
LONG_TESTS = $(if $(SCALED),-o faulthandler_timeout=4000)
RAY := .venv-ray
$(RAY)/installed: pyproject.toml $(STAMPS)/test
	@echo 'installing Ray in $(RAY)'
	@rm -rf $(RAY) && $(BIN)/python -m venv $(RAY)
	@echo "import site; site.addsitedir('$$($(BIN)/python -c '$(PACKAGES)')')" \
	  > $$($(RAY)/bin/python -c '$(PACKAGES)')/packages.pth
	@$(RAY)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[ray]'
	@touch $@

# A cluster has about ten processes.
CLUSTER_TESTERS = $(shell $(if $(QUICK),nproc,expr $$(nproc) / 2))
ray: TESTERS = $(CLUSTER_TESTERS)
ray: $(RAY)/installed
	scripts/engines/install ssh slurm
	$(FULL_SCALE) HYPERPLANE_REQUIRE_NETWORKS=ray HYPERPLANE_REQUIRE_SERVICES=1 PYTHONDONTWRITEBYTECODE= $(RAY)/bin/python $(PYTEST_OPTIONS) --quiet --timeout 900 $(LONG_TESTS) -m 'ray$(if $(SCALED), and scaled)$(if $(QUICK), and not slow)' $(if $(ONLY),-k '$(ONLY)') \
	  $$(grep --recursive --files-with-matches --extended-regexp 'mark\.ray' --include 'test_*.py' tests) \
	  $$(grep --recursive --files-with-matches --extended-regexp '^<!-- needs: ray' --include '*.md' docs)

# As ray, with Spark (two minutes and 700 MB to install), RayDP and pandas 2, and with the packages of
# $(NETWORKS), because estimators read dataframes of Spark. Debian's Java 17 is installed if there is
# no Java, which needs root.
SPARK := .venv-spark
$(SPARK)/installed: pyproject.toml $(STAMPS)/test $(NETWORKS)/installed
	@echo 'installing Spark in $(SPARK)'
	@rm -rf $(SPARK) && $(BIN)/python -m venv $(SPARK)
	@for other in $(BIN) $(NETWORKS)/bin; do \
	  echo "import site; site.addsitedir('$$($$other/python -c '$(PACKAGES)')')"; \
	done > $$($(SPARK)/bin/python -c '$(PACKAGES)')/packages.pth
	@$(SPARK)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[raydp]'
	@touch $@

spark: TESTERS = $(CLUSTER_TESTERS)
# Tests without Spark, for pandas 2, in about ten minutes.
PANDAS_2 := tests/spec tests/sizing tests/collections/frames $(wildcard tests/clusters/test_local*.py) \
  tests/clusters/test_default_clients.py
spark: $(SPARK)/installed
	scripts/engines/install ssh slurm spark
	$(FULL_SCALE) HYPERPLANE_REQUIRE_NETWORKS=spark HYPERPLANE_REQUIRE_SERVICES=1 PYTHONDONTWRITEBYTECODE= $(SPARK)/bin/python $(PYTEST_OPTIONS) --quiet --timeout 900 $(LONG_TESTS) -m 'spark$(if $(SCALED), and scaled)$(if $(QUICK), and not slow)' $(if $(ONLY),-k '$(ONLY)') \
	  $$(grep --recursive --files-with-matches --extended-regexp 'mark\.spark' --include 'test_*.py' tests) \
	  $$(grep --recursive --files-with-matches --extended-regexp '^<!-- needs: spark' --include '*.md' docs)
	$(if $(ONLY)$(SCALED),,PYTHONDONTWRITEBYTECODE= $(SPARK)/bin/python \
	  $(subst --numprocesses $(TESTERS),--numprocesses $(shell expr $$(nproc) + 1),$(PYTEST_OPTIONS)) --quiet $(PANDAS_2))

# A missing service is a failure here, not a skip. ENGINES: the engines to test, and browser for the
# pages of hyperplane ui, and the pane of JupyterLab, in Chromium; the first use of kubernetes builds it
# for a quarter of an hour. ONLY: an expression for pytest -k; ONLY_KUBERNETES: one for the tests of
# kubernetes.
ENGINES ?= ssh slurm gateway
engines: $(STAMPS)/test $(if $(filter browser,$(ENGINES)),$(STAMPS)/lab)
	$(if $(filter-out gateway,$(ENGINES)),scripts/engines/install $(filter-out gateway,$(ENGINES)))
	$(if $(filter kubernetes,$(ENGINES)),scripts/engines/kubernetes_build)
	HYPERPLANE_REQUIRE_SERVICES=1 $(BIN)/python scripts/engines/run_tests.py $(ENGINES) \
	  --only '$(ONLY)' $(if $(ONLY_KUBERNETES),--only-of kubernetes '$(ONLY_KUBERNETES)')

lint: $(STAMPS)/lint
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	git ls-files -z | xargs -0 $(BIN)/detect-secrets-hook $(SECRETS)

# Known forms of keys only: random text and words such as "password" are frequent in tests, which also
# have URLs with passwords. The excluded files are of a release; their keys were cut.
SECRETS := --exclude-files '^tests/compat/data/' $(foreach plugin,BasicAuthDetector \
  Base64HighEntropyString HexHighEntropyString KeywordDetector,--disable-plugin $(plugin))

audit: $(STAMPS)/lint
	$(BIN)/python -m scripts.audit

types: $(STAMPS)/lint
	$(BIN)/mypy

docs: $(STAMPS)/docs
	$(BIN)/sphinx-build -E -W --keep-going -q -d docs/_build/doctrees docs docs/_build/html
	@echo 'open docs/_build/html/index.html'

pages: $(STAMPS)/test
	$(BIN)/python -m scripts.pages
	$(BIN)/python -m scripts.schema

notebooks: $(NETWORKS)/installed $(SPARK)/installed
	$(BIN)/python -m scripts.notebooks
	$(NETWORKS)/bin/python -m scripts.notebooks torch
	$(SPARK)/bin/python -m scripts.notebooks spark

# Before a release. FORCE=1: replace existing fixtures.
fixtures: $(STAMPS)/test
	$(BIN)/python -m scripts.compat.fixtures $(if $(FORCE),--force)

check:
	bash .ci/run

clean:
	rm -rf $(VENV) .venv-oldest $(NETWORKS) $(RAY) $(SPARK) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage
