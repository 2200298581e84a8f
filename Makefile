# `make` alone lists the targets. Each target sets up what it needs by itself (.ci/setup.sh): .venv from
# requirements.lock, and Java 17 where there is none.
.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-all test-long test-environments cluster-demo zip jars bench lint lock setup clean \
    test-airflow test-browser test-s3 test-connect test-mutations test-properties test-spark durations docs \
    changes figures hooks release test-versions

# Another environment's settings must not reach into this one.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTEST_ADDOPTS
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS
export PYTHONNOUSERSITE := 1
# uv brings certificates of its own, and pip takes the system's: behind a proxy only these may do.
export UV_SYSTEM_CERTS := 1

VENV := .venv
# Every recipe that needs the environment begins with this: its JAVA_HOME, its commands first on PATH.
USE := . ./$(VENV)/environment && PATH="$(CURDIR)/$(VENV)/bin:$$PATH" &&

help: ## list the targets (what `make` alone does)
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## a real server, stalled work, one Spark run, and the proof that the server and both engines agree
	@$(USE) claimlib demo

# A file that takes much more than its share of the time fails: see tests/durations.py.
TEST := -m "not long and not environment" --hypothesis-profile some -n 2 --dist loadfile --no-loadscope-reorder \
    --durations=10 -p tests.durations
test: setup lint ## lint, types and the tests of every behavior; the pure modules need 100 % coverage
	@$(USE) pytest $(TEST) --cov

durations: setup ## run the tests of `make test`, and write down how long each file took (tests/durations.json)
	@$(USE) pytest $(TEST) --write-durations

test-quick: setup ## lint, types, all tests without Spark and a few with: some 90 s
	@$(USE) ruff check . && ruff format --check .
	@$(USE) pytest -m smoke -q --no-header >.smoke.log 2>&1 & smoke=$$!; \
	    $(USE) mypy && pytest tests/unit -m "not long and not slow" --hypothesis-profile quick --cov -q; \
	    tests=$$?; wait $$smoke; spark=$$?; cat .smoke.log; rm .smoke.log; exit $$((tests + spark))

# Each target leaves a file when it has passed, so that `make test-all` goes on where it was stopped. It begins anew
# once all have passed, or after `make clean`.
PARTS := test test-properties test-mutations test-environments test-spark test-long test-connect test-s3 test-airflow \
    test-browser test-versions docs release
test-all: setup ## all test targets, one after the other; run again, it goes on with the first that has not passed
	@mkdir -p build/test-all
	@for part in $(PARTS); do \
	    [ -e build/test-all/$$part ] && echo "$$part: passed before" && continue; \
	    echo "$$part"; began=$$(date +%s); $(MAKE) --no-print-directory $$part || exit 1; \
	    echo "$$(( $$(date +%s) - began )) s" >build/test-all/$$part; \
	done
	@for part in $(PARTS); do echo "$$part: $$(cat build/test-all/$$part)"; done; rm -r build/test-all

test-properties: setup ## the property tests with all their examples
	@$(USE) pytest -m "not long and not environment" -n 2 tests/unit tests/live/test_entries.py tests/edge/test_output_render.py

# Each command, and what may disturb it. The other tests of tables are about one engine alone, or about code that is
# the same for both.
ON_SPARK := again by_id changes check entry given_up import kills maintain one_run pages policy previous races readers \
    repeated_rows replay restored retire snapshot undo unsound_rows upgrade vectors xack xautoclaim xclaim xpending
test-spark: setup ## the tests of each command again, on stores that are open in Spark
	@$(USE) pytest -m "not long and not environment" --engine spark -n 2 --dist loadfile \
	    $(ON_SPARK:%=tests/delta/test_%.py)

test-environments: setup ## tests that build environments, Connect servers or a cluster
	@$(USE) pytest -m environment -n 2 --dist loadfile --durations=10

test-long: setup ## the tests marked long; their figures go into docs/figures.json and docs/exactness.md
	@rm -rf build/figures
	@$(USE) pytest -m long -n 2 --dist worksteal --durations=10
	@$(USE) python -m tests.live.figures

cluster-demo: setup ## a snapshot and a sweep on a standalone cluster, of whose workers two are killed
	@$(USE) python -m tests.cluster.demo

zip: setup ## dist/claimlib.zip: the package for the executors of a cluster (spark-submit --py-files)
	@mkdir -p dist && $(USE) python -m tests.cluster.package dist/claimlib.zip

jars: setup ## dist/jars: Spark's jars of Delta, for hosts without a way to Maven Central
	@$(USE) python -m tests.cluster.jars dist/jars

# An environment beside .venv: what a lock says, installed where that has changed.
define own_environment
@$(USE) cmp -s $(1) $(2)/installed.lock || { \
    uv venv --quiet --clear --python .venv/bin/python $(2) && \
    uv pip install --quiet --python $(2)/bin/python --require-hashes --only-binary :all: --requirement $(1) && \
    cp $(1) $(2)/installed.lock; }
endef

# Airflow has an environment of its own: it and Spark need not agree on any package. Its lock is written by
#   echo apache-airflow | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-airflow.lock
AIRFLOW := .venv-airflow
test-airflow: setup ## the DAG on Airflow 3, a real server and a store: tasks killed, retried, alerts
	$(call own_environment,requirements-airflow.lock,$(AIRFLOW))
	@$(USE) pytest -p no:randomly -p no:cacheprovider --durations=5 tests/airflow/live_dag.py

# So has the S3 API, which is a process of its own. Its lock is written by
#   echo 'moto[server]' | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-s3.lock
S3 := .venv-s3
test-s3: setup ## a store on an S3 API: init, snapshot, sweep, and storage that fails
	$(call own_environment,requirements-s3.lock,$(S3))
	@$(USE) pytest -p no:randomly -p no:cacheprovider --durations=5 tests/s3/live_s3.py

# And playwright with axe-core, for Debian's chromium. Its lock is written by
#   echo axe-playwright-python | uv pip compile - --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-browser.lock
BROWSER := .venv-browser
test-browser: setup ## each page of `claimlib serve` and of the reports in Chromium: errors, access, pictures
	$(call own_environment,requirements-browser.lock,$(BROWSER))
	@$(USE) pytest -p no:randomly -p no:cacheprovider --durations=5 tests/browser/live_pages.py

# And mutmut, with what the tests need besides. Its lock is written by
#   printf '%s\n' hypothesis mutmut numpy pytest pytest-timeout | uv pip compile - \
#       --constraint requirements.lock --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-mutations.lock
MUTATIONS := .venv-mutations
test-mutations: setup ## the unit tests of the pure modules notice each small change of them
	$(call own_environment,requirements-mutations.lock,$(MUTATIONS))
	@rm -rf mutants
	@$(USE) $(MUTATIONS)/bin/mutmut run --max-children 2
	@$(USE) $(MUTATIONS)/bin/python -m tests.mutations

test-versions: setup ## tests on each supported Python, with locked and with the lowest allowed packages
	@$(USE) python -m tests.versions

# The plans, the notebooks, and the commands that differ in their statements. The other tests of tables are done in a
# classic session (test-spark).
OVER_CONNECT := by_id check entry import init kills maintain places replay retire snapshot stores undo upgrade vectors xack \
    xautoclaim xpending
test-connect: setup ## the plans, the notebooks and most commands over Spark Connect
	@$(USE) SPARK_REMOTE="local[2]" pytest -m "not long and not classic" --durations=10 tests/spark \
	    tests/edge/test_notebooks.py $(OVER_CONNECT:%=tests/delta/test_%.py)

# And what builds the site. Its lock is written by
#   uv pip compile --group docs --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-docs.lock
DOCS := .venv-docs
docs: setup ## the documentation as a site to read offline: build/site/index.html
	$(call own_environment,requirements-docs.lock,$(DOCS))
	@$(USE) $(DOCS)/bin/python -m tests.site

# And what a commit and a release need besides. Its lock is written by
#   uv pip compile --group tools --universal --python-version 3.11 --generate-hashes --no-header \
#       --no-emit-index-url --output-file requirements-tools.lock
TOOLS := .venv-tools
changes: setup ## the changelog of the next version, from the files in changes/
	$(call own_environment,requirements-tools.lock,$(TOOLS))
	@$(TOOLS)/bin/towncrier build --draft --version next

hooks: setup ## have git check style, types and generated files before each commit (pre-commit)
	$(call own_environment,requirements-tools.lock,$(TOOLS))
	@$(TOOLS)/bin/pre-commit install

release: setup ## build/release: the wheel and the source archive, checked; publishes nothing
	$(call own_environment,requirements-tools.lock,$(TOOLS))
	@rm -rf build/release
	@$(USE) uv build --quiet --no-build-isolation --python $(VENV)/bin/python --out-dir build/release
	@$(TOOLS)/bin/twine check --strict build/release/claimlib-*
	@$(USE) python -m tests.release build/release

bench: setup ## time a sweep: make bench ROWS=1000000 SHAPE=many (CONTRIBUTING.md has the shapes)
	@$(USE) python -m tests.bench --rows $(or $(ROWS),1000000) \
	    --shape $(or $(SHAPE),many) --data $(or $(DATA),half) --times $(or $(TIMES),3) \
	    --driver-memory $(or $(MEMORY),4g) --max-result-size $(or $(RESULT),1g)

lint: setup ## ruff (rules and format) and mypy
	@$(USE) ruff check .
	@$(USE) ruff format --check .
	@$(USE) mypy

lock: setup ## write requirements.lock from pyproject.toml (versions and hashes)
	@$(USE) uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
	    --all-extras --group dev --generate-hashes --no-header --no-emit-index-url \
	    --output-file requirements.lock

figures: setup ## draw docs/figures/*.svg from the .dot and .json files beside them
	$(call own_environment,requirements-tools.lock,$(TOOLS))
	@$(USE) python -m tests.diagrams
	@$(TOOLS)/bin/python -m tests.plots

setup: ## only set up .venv and Java; the other targets do it by themselves
	@./.ci/setup.sh

clean: ## remove .venv and everything that a run leaves behind in this folder
	rm -rf $(VENV) $(AIRFLOW) $(DOCS) $(S3) $(BROWSER) $(TOOLS) build dist .coverage .smoke.log .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf $(MUTATIONS) mutants derby.log metastore_db spark-warehouse demo-store
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
