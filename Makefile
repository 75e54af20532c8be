# Everything runs on a machine that has Python 3.11+ and make; `make` alone lists the targets.
# Each target installs what it needs: a virtual environment in .venv, and Java where there is none.

PYTHON ?= python3

VENV := .venv
BIN := $(CURDIR)/$(VENV)/bin
READY := $(VENV)/ready
# The newest Spark whose JVM Kafka connector can be fetched, for the side-by-side tests.
SPARK := tests/matrix/spark-4.2.txt
# Compiled at the install, so a change means another one.
COMPILED := $(wildcard connector/pyspark_pykafka/engines/wire/records/*.pyx connector/pyspark_pykafka/formats/*.pyx connector/pyspark_pykafka/formats/*.pxi)
# Spark starts its Java from JAVA_HOME, and its Python workers from PYSPARK_PYTHON.
RUN := JAVA_HOME="$$($(BIN)/python scripts/java_home.py)" && export JAVA_HOME && \
	PYSPARK_PYTHON="$(BIN)/python" PATH="$(BIN):$$PATH"
# Three processes, each with a broker and a Spark session of its own: most tests wait more than they work.
PARALLEL := -n 3 --dist worksteal
# A simulated history depends on the order of sets; `python -m tests.simulation` has the same order.
HASHES := PYTHONHASHSEED=0
# Spark starts thousands of Python processes: without compiled modules each takes a fifth longer.
BYTECODE := PYTHONDONTWRITEBYTECODE=
NOX := $(RUN) nox --session
FUZZ_SECONDS ?= 60
SIMULATE_SEEDS ?= 0-9999
SOAK_MINUTES ?= 60

.DEFAULT_GOAL := help
.PHONY: help demo test lint fix simulate matrix matrix-smoke installs slow soak proof browser promtool screenshots bench bench-quick fuzz docs clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | \
		while IFS='|' read -r target text; do printf '%-20s %s\n' "$$target" "$$text"; done

demo: $(READY)  ## watch 336,776 flights go through a real Kafka broker and Spark, and back
	@$(RUN) python examples/demo.py

test: $(READY)  ## run all tests, against brokers that they start, on Spark 4.2
	@$(RUN) $(HASHES) $(BYTECODE) python -m pytest --require-broker $(PARALLEL) $(ARGS)

lint: $(READY)  ## check style, formatting, types and shell scripts; change nothing
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/shellcheck .ci/run

fix: $(READY)  ## format the code and mend what can be mended without thought
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

simulate: $(READY)  ## run simulated histories of each workload, 10,000 seeds; SIMULATE_SEEDS for others
	@$(RUN) python -m tests.simulation all --seeds $(SIMULATE_SEEDS) --jobs 2 $(ARGS)

matrix: $(READY)  ## run the tests on Spark 4.0, 4.1, 4.2 and 4.3
	@$(NOX) tests -- $(PARALLEL)

matrix-smoke: $(READY)  ## run the few tests marked smoke on Spark 4.0, 4.1 and 4.3
	@$(NOX) 'tests(4.0)' 'tests(4.1)' 'tests(4.3)' -- -m smoke

installs: $(READY)  ## check that each Python that we name finds a wheel of each dependency
	@$(NOX) installs

slow: $(READY)  ## run the slow tests: random schedules with many seeds, every codec, both engines
	@$(RUN) $(HASHES) $(BYTECODE) python -m pytest --require-broker --soak $(PARALLEL) $(ARGS)

soak: $(READY)  ## run all workloads at once while faults strike, for an hour; SOAK_MINUTES for more
	@$(RUN) python -m tests.soak --minutes $(SOAK_MINUTES) --results soak.json $(ARGS)

proof: $(READY)  ## write docs/proof.md from soak.json, or from the results in the tree
	@$(RUN) python -m tests.soak.report $(wildcard soak.json)

browser: $(READY) docs  ## look at the page and the documentation in a headless Chromium, which must be installed
	@$(RUN) python -m pytest --browser --require-broker tests/browser $(ARGS)

promtool: $(READY)  ## evaluate the alert rules and the dashboard's queries with promtool, which must be installed
	@$(RUN) python -m pytest --promtool tests/promtool $(ARGS)

screenshots: $(READY)  ## make the pictures of docs/screenshots, in a headless Chromium and by the demo
	@$(RUN) python -m tests.browser.screenshots $(ARGS)

bench: $(READY)  ## measure against the JVM connector: an hour or more, on a machine that does nothing else
	@$(RUN) python -m bench $(ARGS)

bench-quick: $(READY)  ## measure batch reads of 100 B and 1 KB in three minutes; prints ratios
	@$(RUN) python -m bench --quick $(ARGS)

fuzz: $(READY)  ## spoil record batches, JSON, Avro, Protobuf and written values for a minute each; FUZZ_SECONDS for more
	@$(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	@$(BIN)/python -m fuzz.fuzz_records -max_total_time=$(FUZZ_SECONDS) $(ARGS)
	@$(BIN)/python -m fuzz.fuzz_json -max_total_time=$(FUZZ_SECONDS) $(ARGS)
	@$(BIN)/python -m fuzz.fuzz_avro -max_total_time=$(FUZZ_SECONDS) $(ARGS)
	@$(BIN)/python -m fuzz.fuzz_protobuf -max_total_time=$(FUZZ_SECONDS) $(ARGS)
	@$(BIN)/python -m fuzz.fuzz_encoder -max_total_time=$(FUZZ_SECONDS) $(ARGS)

docs: $(READY)  ## build the documentation into site/; broken links, and anything loaded from outside, are errors
	@PYTHONPATH=scripts NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python scripts/check_site.py site
	@echo 'The documentation is in site/index.html'

clean:  ## remove what the targets made, the virtual environment too
	rm -rf $(VENV) .nox site build dist connector/*.egg-info
	rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse artifacts
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(READY): pyproject.toml $(SPARK) $(COMPILED)
	@$(PYTHON) -c 'import sys; \
		sys.exit("pykafka needs Python 3.11 or newer, but $(PYTHON) is %d.%d. Name another with: make PYTHON=python3.12" % sys.version_info[:2] \
		if sys.version_info < (3, 11) else 0)'
	@echo 'Setting up $(VENV) with Spark; this takes about two minutes once'
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python scripts/set_up.py $(SPARK)
	@touch $@
