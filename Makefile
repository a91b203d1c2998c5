# Everything runs in .venv, which `make install` makes from requirements.lock.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTHON ?= python3
# uv from the PATH if it is there; else one of our own, fetched with pip.
UV := $(shell command -v uv || echo .uv/bin/uv)
# One more than cores, of two: those that wait for a server or a timeout use none.
WORKERS ?= 3

# Each in an environment of its own: what they need is much, and clashes.
INTEGRATIONS := build/integrations/airflow build/integrations/dagster
RECIPES := build/integrations/dbt build/integrations/sqlmesh

.DEFAULT_GOAL := help
.PHONY: help install demo docs test integrations $(INTEGRATIONS) $(RECIPES) quick proof check soak mutants bench dist lock clean
.PHONY: java

help: ## List these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(STAMP) ## Install Instep and its tools into .venv

demo: java $(STAMP) ## Build an index of documents and a small graph on Spark, edit a file, and ask both
	@$(BIN)/python examples/demo.py

docs: $(STAMP) ## Build the documentation as a site in build/site: a broken link fails it
	@$(BIN)/zensical build --strict

# One process for all tests of a group: its server, or Spark, is started once. Their order is that of tests/groups.py.
GROUPED := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder

# As `instep check` leaves it behind: each JVM that a test starts is there in half the time.
CLASSES := $(VENV)/.classes

test: $(CLASSES) ## Run the tests
	@$(BIN)/pytest $(GROUPED) -m "not long"

proof: $(STAMP) ## Run the dearest tests of what has changed, and note with what they passed: commit tests/proved.txt
	@$(BIN)/python -m tests.proof $(GROUPED)

QUICK := $(addprefix tests/,domain project tables doubles ledger/test_sqlite.py ledger/test_log.py)

quick: $(STAMP) ## Run the tests of rules, declarations and the ledger in under a minute: no JVM, no servers
	@$(BIN)/pytest -q $(GROUPED) -m "not (long or slow or spark or server)" $(QUICK)

check: $(STAMP) ## Linters, types, layers and documentation
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/pytest -q tests/docs/test_documented.py

integrations: $(INTEGRATIONS) $(RECIPES) ## The packages for Airflow and Dagster, and the recipes for others, on real ones

$(INTEGRATIONS): build/integrations/%: $(STAMP)
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python $@
	@$(UV) pip install --quiet --python $@/bin/python --editable . --editable integrations/$* --group integrations/$*/pyproject.toml:dev
	@$@/bin/mypy --config-file integrations/$*/pyproject.toml integrations/$*/instep_$*
	@cd integrations/$* && $(CURDIR)/$@/bin/pytest

$(RECIPES): build/integrations/%: $(STAMP)
	@$(UV) venv --quiet --allow-existing --python $(BIN)/python $@
	@$(UV) pip install --quiet --python $@/bin/python --group integrations/$*/pyproject.toml:dev
	@cd integrations/$* && PATH="$(CURDIR)/$@/bin:$(CURDIR)/$(BIN):$$PATH" pytest

SOAK_SECONDS ?= 600
SCHEDULES ?= 1000000

soak: $(CLASSES) ## The long tests; kill and stop real servers for SOAK_SECONDS on each ledger; simulate SCHEDULES of faults
	@$(BIN)/pytest $(GROUPED) --prove -m "long or proof"
	@$(BIN)/pytest $(GROUPED) --prove -m "hypothesis and not long" --hypothesis-profile=thorough
	@$(BIN)/python -m tests.soak --ledger all --seconds $(SOAK_SECONDS) --documents 20000
	@$(BIN)/python -m tests.soak.cluster --seconds $(SOAK_SECONDS)
	@$(BIN)/python -m tests.soak.cluster --seconds $(SOAK_SECONDS) --connect
	@$(BIN)/python -m tests.simulator --schedules $(SCHEDULES) --ledger model
	@for each in sqlite postgresql mariadb; do $(BIN)/python -m tests.simulator --schedules 200 --ledger $$each || exit 1; done

mutants: $(STAMP) ## Slips of one line in every layer, WORKERS at once: does some test notice each? ONLY=words chooses; RESUME=file goes on
	@$(BIN)/python -m tests.mutants --workers $(WORKERS) $(if $(ONLY),--only $(ONLY)) $(if $(RESUME),--resume $(RESUME))

bench: $(STAMP) ## Compare with bare scripts, job queues and bounds; prints tables
	@$(BIN)/python -m bench
	@$(BIN)/python -m bench.claims
	@$(BIN)/python -m bench.coordination
	@$(BIN)/python -m bench.makespan
	@$(BIN)/python -m bench.events
	@$(BIN)/python -m bench.why
	@$(BIN)/python -m bench.matrix
	@$(BIN)/python -m bench.page
	@$(BIN)/python -m bench.watchers
	@$(BIN)/python -m bench.tables
	@$(BIN)/python -m bench.slicing
	@$(BIN)/python -m bench.changes
	@$(BIN)/python -m bench.lakes
	@$(BIN)/python -m bench.neighbours
	@$(BIN)/python -m bench.vectors
	@$(BIN)/python -m bench.embedders
	@$(BIN)/python -m bench.topics
	@$(BIN)/python -m bench.opensearch
	@$(BIN)/python -m bench.rebuilds
	@$(BIN)/python -m bench.giant
	@$(BIN)/python -m bench.cluster
	@$(BIN)/python -m bench.queue_postgres
	@$(BIN)/python -m bench.queue

$(CLASSES): $(STAMP)
	@$(BIN)/python -c "from instep.pipeline.engine import doctor, settings; doctor.examine(settings.SparkSettings('local[2]'))" \
		2>/dev/null || echo 'Spark does not start here: tests that need it will say why.'
	@touch $@

dist: $(STAMP) $(UV) ## Build wheel, sdist and a list of components in dist/, and try the wheel with every Python that is here
	@rm -rf dist && $(UV) build --quiet --out-dir dist .
	@$(UV) lock --quiet
	@$(UV) export --quiet --all-extras --no-dev --format cyclonedx1.5 --output-file dist/instep.cdx.json >/dev/null
	@$(BIN)/python -m tests.packaging dist

lock: $(UV) ## Refresh requirements.lock to the newest versions that fit
	@$(UV) lock --quiet --upgrade
	@$(UV) export --quiet --all-groups --no-emit-project --no-hashes --no-annotate --no-header \
		--format requirements.txt --output-file requirements.lock

clean: ## Remove what was built or cached, and .venv
	rm -rf $(VENV) .uv dist build demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .cache
	find src tests bench examples -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): requirements.lock pyproject.toml | $(UV)
	@test -x $(BIN)/python || $(UV) venv --quiet --allow-existing --python '>=3.11' $(VENV)
	@$(UV) pip install --quiet --python $(BIN)/python --compile-bytecode --requirements requirements.lock --editable .
	@touch $@

.uv/bin/uv:
	@$(PYTHON) -m venv .uv || { echo 'Python 3.11 or newer with its venv module is needed (apt install python3-venv).'; exit 1; }
	@.uv/bin/pip install --quiet --disable-pip-version-check uv

java:
	@version=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p'); \
	test "$${version:-0}" -ge 17 || { echo 'Java 17 or newer is needed: install a JDK (apt install openjdk-17-jre-headless) and try again.'; exit 1; }
