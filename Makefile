# Python 3.11 or later: make PYTHON=/path/to/python3.12 setup
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
AIRFLOW_VENV := .venv-airflow
AIRFLOW_BIN := $(AIRFLOW_VENV)/bin
DOCS_VENV := .venv-docs
# Unless make was told already how much to do at once.
PARALLEL = $(if $(findstring jobserver,$(MAKEFLAGS)),,-j3)
# uv installs packages side by side.
UV := $(BIN)/python constraints/uv_like_pip.py
AIRFLOW_PACKAGES := apache-airflow apache-airflow-providers-apache-spark apache-airflow-providers-openlineage \
  apache-airflow-providers-standard asyncpg hdfs-native mypy psycopg2-binary 'psycopg[binary]' pytest pytest-timeout
# Ruff formats the signatures in the reference.
DOCS_PACKAGES := mkdocs mkdocs-material mkdocstrings-python ruff
PORT ?= 8080
# Two processes, each with its own Flink, Airflow or Spark; see _GROUPS in tests/conftest.py.
SIDE_BY_SIDE := -n 2 --dist loadscope --no-loadscope-reorder
# Hypothesis, which the other tests' conftest sets up, isn't there.
IN_AIRFLOW = AIRFLOW_HOME=$(CURDIR)/.cache/test-airflow $(AIRFLOW_BIN)/pytest --confcutdir=tests/airflow tests/airflow
# An extra, which the image has, and of the tests few: beside the environment.
KUBERNETES_PROVIDER := .cache/kubernetes-provider
ENVIRONMENTS := $(VENV)/.made $(AIRFLOW_VENV)/.made $(KUBERNETES_PROVIDER)/.made
WITH_KUBERNETES = PYTHONPATH=$(CURDIR)/$(KUBERNETES_PROVIDER)$(if $(PYTHONPATH),:$(PYTHONPATH))
KILLS ?= 300
ALTERATIONS ?= 1000
MUTANTS ?= 500
RUNS ?= 200
SEED ?= $(shell date +%s)
# Like Spark: take Java from JAVA_HOME if it is set, else from PATH.
JAVA := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/java,java)
JAVAC := $(if $(JAVA_HOME),$(JAVA_HOME)/bin/javac,javac)

.DEFAULT_GOAL := help
.PHONY: help setup test test-fast test-all test-airflow test-library test-flink test-spark test-standalone test-kill \
  test-samples test-airflow-samples compiled-tests test-images test-chaos test-saboteur test-mutants test-operator test-operator-by-tasks test-operator-of-sessions test-operator-by-dag operator-jars jars lint format bench bench-large docs hashes sbom demo up down airflow clean check-python check-java check-jre \
  programs environments kernels spark lint-types lint-airflow-types lint-style
# Else every run of the tests would compile all of them, and every command that they start its modules.
unexport PYTHONDONTWRITEBYTECODE
# If a recipe fails, make deletes its target, so that no stamp says that it was done.
.DELETE_ON_ERROR:

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: environments ## Make both environments: .venv (library, Spark, tools) and .venv-airflow (Airflow)
	@test -z "$$(find flinkstate stateferry spark_jobs -name '*.py' -newer $(VENV)/.made)" || { \
	  $(MAKE) --no-print-directory kernels spark && touch $(VENV)/.made; }

test: check-java ## Lint, then the tests: real Flink, Spark and Airflow, of large matrices a sample
	$(MAKE) --no-print-directory -j4 environments programs
	$(MAKE) --no-print-directory -j3 --output-sync=target lint jars compiled-tests
	$(MAKE) --no-print-directory -j2 --output-sync=line test-airflow-samples test-samples

# Else each of the processes that begin together would compile all modules of the tests, and of the packages they import.
compiled-tests: $(VENV)/.made
	@$(BIN)/pytest --collect-only -q >/dev/null 2>&1 || true

test-airflow-samples:
	$(IN_AIRFLOW) -m 'not full' --durations=15 --durations-min=10

# Three processes: that with Airflow often waits.
test-samples:
	$(BIN)/pytest $(SIDE_BY_SIDE) -n 3 --durations=25 --durations-min=10

test-fast: $(VENV)/.made ## The quick tests, which need neither Flink nor Spark
	$(BIN)/pytest $(SIDE_BY_SIDE) --fast

test-all: lint test-airflow test-library test-flink test-spark test-standalone ## Every test there is, whole matrices too, in six parts

test-airflow: $(ENVIRONMENTS) check-java ## Part of test-all: what runs inside Airflow's environment
	$(IN_AIRFLOW)

test-library: programs $(ENVIRONMENTS) check-java ## Part of test-all: what needs no server
	STATEFERRY_CHAOS_RUNS=20 STATEFERRY_ALTERATIONS=80 \
	  $(BIN)/pytest --all $(SIDE_BY_SIDE) --ignore=tests/airflow --ignore=tests/docker/images --ignore=tests/flink --ignore=tests/spark --ignore=tests/standalone

test-flink: $(VENV)/.made check-java ## Part of test-all: real Flink as the judge
	STATEFERRY_CHAINS=1000 $(BIN)/pytest --all -n 2 --dist loadfile tests/flink

test-spark: $(VENV)/.made check-java ## Part of test-all: real Spark
	STATEFERRY_KILLS=20 $(BIN)/pytest --all tests/spark

test-standalone: programs $(VENV)/.made $(AIRFLOW_VENV)/.made check-java ## Part of test-all: real Airflow, with Flink and Spark beside it
	$(BIN)/pytest --all tests/standalone

test-images: $(VENV)/.made ## The images of docker/, built without a container engine, and the compose file's services from them
	@sh tests/programs.sh images
	$(BIN)/pytest --all tests/docker/images

test-kill: $(VENV)/.made check-java ## Hundreds of real SIGKILLs at random moments: KILLS=300 SEED=..., which is printed
	STATEFERRY_KILLS=$(KILLS) STATEFERRY_KILL_SEED=$(SEED) $(BIN)/pytest -s --all tests/steps/test_killed.py tests/spark/test_sigkill.py

test-chaos: programs $(VENV)/.made check-java ## Runs with a store, a Postgres, a disk or a Spark cluster in trouble: RUNS=200 SEED=..., which is printed
	@echo "SEED=$(SEED)"
	STATEFERRY_CHAOS_RUNS=$(RUNS) STATEFERRY_CHAOS_SEED=$(SEED) $(BIN)/pytest --all -n 2 tests/chaos

test-saboteur: $(VENV)/.made check-java ## A thousand alterations of results, of each of 13 upgrades and of each of 11 checks, one of each kind judged by real Flink: ALTERATIONS=1000 SEED=...
	STATEFERRY_ALTERATIONS=$(ALTERATIONS) STATEFERRY_ALTERATION_SEED=$(SEED) \
	  $(BIN)/pytest -s --all tests/validation/test_saboteur.py \
	  tests/validation/test_mutated_results.py tests/steps/test_damaged_upgrade.py tests/verdict/test_damaged.py \
	  tests/flink/test_judge_alterations.py

test-mutants: $(VENV)/.made ## Small faults in the code that checks results, which its tests must see: MUTANTS=500 SEED=..., which is printed
	$(BIN)/python -m tests.mutants --count $(MUTANTS) --seed $(SEED)

test-operator: $(VENV)/.made $(KUBERNETES_PROVIDER)/.made check-java ## Cut-overs under the real Flink Kubernetes Operator: STATEFERRY_OPERATOR_JARS=FOLDER
	@test -n "$$STATEFERRY_OPERATOR_JARS" || { \
	  echo "STATEFERRY_OPERATOR_JARS must name a folder with the jars of the operator's image:" >&2; \
	  echo "flink-kubernetes-operator-...-shaded.jar, flink-kubernetes-standalone-....jar and log4j-slf4j-impl-....jar." >&2; \
	  exit 1; }
	$(MAKE) --no-print-directory -j3 --output-sync=line test-operator-by-tasks test-operator-of-sessions test-operator-by-dag

operator-jars: ## What make test-operator wants, compiled by Maven: VERSION=1.15.0 SOURCE=FOLDER with the operator's source
	@test -n "$(VERSION)" -a -n "$(SOURCE)" || { \
	  echo "make operator-jars VERSION=1.15.0 SOURCE=FOLDER: a clone of the operator, or its unpacked source release" >&2; exit 1; }
	@sh tests/operator_jars.sh "$(VERSION)" "$(SOURCE)" .cache/operator-jars/$(VERSION)
	@echo "They are there: STATEFERRY_OPERATOR_JARS=$(CURDIR)/.cache/operator-jars/$(VERSION) make test-operator"

# Each has a Kubernetes and an operator of its own. -s: each test prints its outage.
test-operator-by-tasks:
	$(WITH_KUBERNETES) $(IN_AIRFLOW)/operator/test_cut_over.py -s -k 'not session and not native and not flink_1'

test-operator-of-sessions:
	$(WITH_KUBERNETES) $(subst /test-airflow,/test-of-sessions,$(IN_AIRFLOW))/operator/test_cut_over.py -s -k 'session or native'

test-operator-by-dag:
	$(WITH_KUBERNETES) $(subst /test-airflow,/test-by-dag,$(IN_AIRFLOW))/operator -s -m 'not full' -k 'by_dag or flink_1'

lint: $(VENV)/.made $(AIRFLOW_VENV)/.made ## Check style, format, types and import rules
	@$(MAKE) --no-print-directory $(if $(PARALLEL),-j2) --output-sync=target lint-types lint-airflow-types lint-style

lint-types:
	$(BIN)/mypy

lint-airflow-types:
	$(AIRFLOW_BIN)/mypy --config-file plugins/mypy.ini --cache-dir .mypy_cache/airflow

lint-style:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

format: $(VENV)/.made ## Format the code, and apply the safe fixes of the lint rules
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.made $(AIRFLOW_VENV)/.made check-java ## Measure kernels (and plain Python), whole runs (and Flink's State Processor API), and outages
	$(BIN)/python -m benchmarks

bench-large: $(VENV)/.made $(AIRFLOW_VENV)/.made check-java ## Measure whole runs, and the State Processor API, on 9 GB (needs 60 GB of disk), and outages
	$(BIN)/python -m benchmarks pipeline publishing catching_up_large outage outage_large outage_by_dag --keys 5000000 --rounds 1 --out benchmarks/results-large.md

# Python 3.13, as a package of newer versions alone can't be hashed for an older one.
hashes: $(BIN)/uv ## Write the hashes of all pinned packages to constraints/hashes, by the index that pip has
	for one in constraints/*.txt; do $(UV) pip compile -q --generate-hashes --no-annotate --no-header --no-deps \
	  --python-version 3.13 $$one -o constraints/hashes/$${one##*/} || exit 1; done

sbom: $(VENV)/.made $(AIRFLOW_VENV)/.made $(KUBERNETES_PROVIDER)/.made ## Write which packages are in the images of docker/, as CycloneDX JSON, to build/sbom: Debian's by DPKG_STATUS=FILE
	@mkdir -p build/sbom
	for one in spark airflow; do $(BIN)/python constraints/sbom.py $$one $(DPKG_STATUS) >build/sbom/stateferry-$$one.cdx.json || exit 1; done

docs: $(DOCS_VENV)/.made ## Build the documentation as a site, in build/site, without a network; links and anchors are checked
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/python -m mkdocs build -q -f docs_site/mkdocs.yml
	@echo "Look at it: python3 -m http.server -d build/site -b 127.0.0.1 8000"

demo: check-jre environments ## Migrate a demo savepoint in Airflow, from snapshot to publication, and show the report
	$(BIN)/python -m local_airflow demo

up: check-jre environments ## Start Airflow with the DAGs on this machine (PORT=8080)
	$(BIN)/python -m local_airflow up --port $(PORT)

airflow: $(VENV)/.made ## Run Airflow's own command on the Airflow of make up: make airflow ARGS='dags list'
	@$(BIN)/python -m local_airflow airflow $(ARGS)

down: $(VENV)/.made ## Stop the Airflow that make up has started
	$(BIN)/python -m local_airflow down

clean: ## Remove the environments, Airflow's data and everything that was built
	rm -rf $(VENV) $(AIRFLOW_VENV) $(DOCS_VENV) .cache .hypothesis build dist *.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Both environments side by side. The uv of the first one installs both.
environments:
	@$(MAKE) --no-print-directory $(BIN)/uv
	@$(MAKE) --no-print-directory $(PARALLEL) $(ENVIRONMENTS) || { \
	  for made in $(ENVIRONMENTS); do \
	    test -e $$made || echo "$${made%/.made} is not ready: the lines above say why. Run the same command again to go on." >&2; \
	  done; exit 1; }

$(BIN)/uv: | check-python
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --no-compile -c constraints/spark.txt setuptools uv wheel

# pyspark comes later: it is large, there is no wheel of it, and the kernels can be compiled without it.
$(VENV)/.made: pyproject.toml constraints/spark.txt | check-python
	@rm -f $@
	@$(MAKE) --no-print-directory $(BIN)/uv
	echo pyspark > $(VENV)/later.txt
	$(UV) pip install -q --python $(VENV) -c constraints/spark.txt --no-build-isolation --excludes $(VENV)/later.txt \
	  setuptools uv wheel -e '.[spark,postgres,s3,hdfs,test]'
	@$(MAKE) --no-print-directory $(PARALLEL) kernels spark
	touch $@

kernels:
	$(BIN)/python -m stateferry.warm

# Without isolation the pinned setuptools builds the wheel, and it doesn't compress what is unpacked at once.
spark:
	$(UV) pip install -q --python $(VENV) -c constraints/spark.txt --no-build-isolation \
	  --config-setting=--build-option=--compression=stored pyspark
	$(BIN)/python -m stateferry.spark_jobs.startup.class_archive

# Airflow uses only the part of the library that needs neither Spark nor compiled kernels: install no dependencies.
# Several processes of Airflow start at once: compiled in advance, no module is compiled several times.
$(AIRFLOW_VENV)/.made: pyproject.toml constraints/airflow.txt | check-python
	@rm -f $@
	@$(MAKE) --no-print-directory $(BIN)/uv
	test -x $(AIRFLOW_BIN)/python || $(PYTHON) -m venv --without-pip $(AIRFLOW_VENV)
	$(UV) pip install -q --python $(AIRFLOW_VENV) -c constraints/airflow.txt setuptools wheel $(AIRFLOW_PACKAGES)
	$(UV) pip install -q --python $(AIRFLOW_VENV) --no-deps --no-build-isolation -e .
	$(AIRFLOW_BIN)/python -m compileall -q -x '/(tests?|mypy|mypyc|numpy|pandas|pyarrow|pyspark|setuptools)/' $(AIRFLOW_VENV)/lib
	touch $@

$(KUBERNETES_PROVIDER)/.made: constraints/kubernetes.txt $(AIRFLOW_VENV)/.made
	$(UV) pip install -q --python $(AIRFLOW_VENV) --target $(@D) --no-deps -r constraints/kubernetes.txt
	touch $@

$(DOCS_VENV)/.made: constraints/docs.txt | check-python
	@rm -f $@
	@$(MAKE) --no-print-directory $(BIN)/uv
	test -x $(DOCS_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(DOCS_VENV)
	$(UV) pip install -q --python $(DOCS_VENV) -c constraints/docs.txt $(DOCS_PACKAGES)
	touch $@

check-python:
	@$(PYTHON) -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Stateferry needs Python 3.11 or later with venv; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)." >&2; \
	  echo "Install it (Debian: python3 and python3-venv), or name another: make PYTHON=/path/to/python3.12 ..." >&2; \
	  exit 1; }

check-jre:
	@"$(JAVA)" -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])' || { \
	  echo "Spark needs Java 17 or later; '$(JAVA) -version' says: $$("$(JAVA)" -version 2>&1 | head -1)." >&2; \
	  echo "Install it (Debian: openjdk-17-jre-headless) and point JAVA_HOME or PATH at it." >&2; \
	  exit 1; }

programs:
	@sh tests/programs.sh

# What the tests with real Flink fetch and compile at first use, ahead of them.
jars: $(VENV)/.made check-java
	@$(BIN)/python -m tests.flink.jars

# Check javac, not java: the tests compile small Flink jobs, and a JRE has no compiler.
check-java:
	@"$(JAVAC)" -version 2>&1 | grep -q '^javac 17\b' || { \
	  echo "The tests with real Flink and Spark need a JDK 17; '$(JAVAC) -version' says: $$("$(JAVAC)" -version 2>&1)." >&2; \
	  echo "Install it (Debian: openjdk-17-jdk-headless) and point JAVA_HOME or PATH at it." >&2; \
	  echo "'make lint' and 'make test-fast' need no JDK." >&2; \
	  exit 1; }
