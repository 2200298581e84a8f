# `make` alone lists the targets. Each target sets up what it needs by itself (.ci/setup.sh): .venv from
# requirements.lock, and Java 17 where there is none.
.DEFAULT_GOAL := help
.PHONY: help demo test test-quick test-long bench lint lock setup clean

# Another environment's settings must not reach into this one.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONUSERBASE PYTEST_ADDOPTS
unexport SPARK_HOME SPARK_CONF_DIR PYSPARK_PYTHON PYSPARK_DRIVER_PYTHON PYSPARK_SUBMIT_ARGS
export PYTHONNOUSERSITE := 1

VENV := .venv
# Every recipe that needs the environment begins with this: its JAVA_HOME, its commands first on PATH.
USE := . ./$(VENV)/environment && PATH="$(CURDIR)/$(VENV)/bin:$$PATH" &&

help: ## list the targets (what `make` alone does)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## a real server, stalled work, one Spark run, and the proof that both agree
	@$(USE) python -m claimlib.testing.demo

test: setup lint ## lint, types and every test but the long ones; the pure modules need 100 % coverage
	@$(USE) pytest -m "not long" -n 2 --dist loadfile --durations=10 --cov

test-quick: setup ## lint, types, all tests without Spark and a few with: some 90 s
	@$(USE) ruff check . && ruff format --check .
	@$(USE) pytest -m smoke -q --no-header >.smoke.log 2>&1 & smoke=$$!; \
	    $(USE) mypy && pytest tests/unit -m "not long and not slow" --hypothesis-profile quick --cov -q; \
	    tests=$$?; wait $$smoke; spark=$$?; cat .smoke.log; rm .smoke.log; exit $$((tests + spark))

test-long: setup ## the tests marked long; their figures go into test-long.json and the README
	@$(USE) pytest -m long --durations=10
	@$(USE) python -m tests.live.figures

bench: setup ## time a sweep: make bench ROWS=1000000 SHAPE=many (or claims; rivals or repeat, DATA=half)
	@$(USE) python -m claimlib.testing.bench --rows $(or $(ROWS),1000000) \
	    --shape $(or $(SHAPE),many) --data $(or $(DATA),half)

lint: setup ## ruff (rules and format) and mypy
	@$(USE) ruff check .
	@$(USE) ruff format --check .
	@$(USE) mypy

lock: setup ## write requirements.lock anew from pyproject.toml (versions and hashes)
	@$(USE) uv pip compile pyproject.toml --quiet --upgrade --universal --python-version 3.11 \
	    --all-extras --group dev --generate-hashes --no-header --no-emit-index-url \
	    --output-file requirements.lock

setup: ## only set up .venv and Java; the other targets do it by themselves
	@./.ci/setup.sh

clean: ## remove .venv and everything that a run leaves behind in this folder
	rm -rf $(VENV) build dist .coverage .smoke.log .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf derby.log metastore_db spark-warehouse demo-store
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
