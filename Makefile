# Everything into .venv, made anew when the lock changes. Needs: python3 >= 3.11, make, Java >= 17 (for Spark).
PYTHON ?= python3
BIN := .venv/bin
NAME ?= thread
DEMO_HTTP ?= 127.0.0.1:8080

.PHONY: setup demo test test-oracle test-e2e test-rest check check-log check-rest prove bench lock format system
.DEFAULT_GOAL := help

help:
	@echo "make demo    the live page, with a little traffic"
	@echo "make test    all tests          make check   format, lint, types, fast tests"
	@echo "make bench NAME=thread|log|pipeline|views|nexmark|ivm|capture|serve   make prove   long campaigns of faults and kills"
	@echo "make lock    resolve the dependencies anew"

setup: .venv/done

.venv/done: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
	  { echo "Headwater needs Python 3.11 or newer: install it (apt install python3.11) or say make PYTHON=python3.12 ..."; exit 1; }
	@java -version 2>&1 | grep -qE 'version "(1[7-9]|[2-9][0-9])' || \
	  { echo "Headwater needs Java 17 or newer for Spark: install it (apt install openjdk-17-jre-headless)"; exit 1; }
	@echo "setting up .venv (the first time this takes some minutes: Spark alone is 450 MB)"
	@$(PYTHON) -m venv .venv
	@$(BIN)/pip install --quiet --disable-pip-version-check uv
	@$(BIN)/uv pip install --quiet --python $(BIN)/python -r requirements.lock
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@

demo: setup
	@$(BIN)/python examples/demo.py --http $(DEMO_HTTP)

# In three parts at once: what needs Spark waits much, for batches and for processes that start.
SPARK := tests/oracle tests/e2e

test: setup system
	@$(MAKE) --no-print-directory --jobs=3 --output-sync=target test-oracle test-e2e test-rest

test-oracle:
	$(BIN)/pytest --durations=12 tests/oracle

test-e2e:
	$(BIN)/pytest --durations=6 -p no:cacheprovider tests/e2e

test-rest:
	$(BIN)/pytest --durations=12 -p no:cacheprovider $(SPARK:%=--ignore=%)

# What the fast tests leave out needs Spark, servers or a browser.
FAST := HEADWATER_FAULT_STEP=23 $(BIN)/pytest -q -m "not spark and not e2e and not slow and not postgres" --hypothesis-profile=quick
LOG := tests/contract tests/crash tests/property

check: setup
	@$(MAKE) --no-print-directory --jobs=2 --output-sync=target check-log check-rest

check-log:
	$(FAST) $(LOG)

check-rest:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(FAST) -p no:cacheprovider $(LOG:%=--ignore=%)

# Long campaigns: a fault and a power cut at every single act, 200 killed writers, many more examples.
prove: setup system
	HEADWATER_FAULT_STEP=1 HEADWATER_KILLS=200 HEADWATER_APP_KILLS=20 HEADWATER_SEEDS=20 $(BIN)/pytest --hypothesis-profile=prove --timeout=3600 \
	  tests/crash tests/property tests/e2e/test_killed_lanes.py tests/oracle/test_random_batches.py

bench: setup system
	$(BIN)/python benchmarks/$(NAME).py

format: setup
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lock: setup
	$(BIN)/uv pip compile --quiet --universal --no-header --extra dev pyproject.toml -o requirements.lock

# Servers and browsers that some tests want, from Debian, where we may install them; without, those tests say why they skip.
# RUNLEVEL=1: the servers are installed, not started; tests start their own.
system:
	@wanted=""; for each in chromium:chromium mariadbd:mariadb-server redis-server:redis-server; do \
	  PATH="$$PATH:/usr/sbin" command -v $${each%%:*} >/dev/null 2>&1 || wanted="$$wanted $${each##*:}"; done; \
	[ -z "$$wanted" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	  { echo "installing$$wanted for tests"; apt-get update -qq && \
	    RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$wanted >/dev/null; }; } || true
