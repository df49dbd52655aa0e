# Two commands do everything: `make compare` and `make test`. Both make the environment in .venv first; the tests need
# far more packages (PyTorch, Ray, a browser's driver), which the comparison does not wait for.
PYTHON ?= python3
VENV := .venv
PACKAGES := $(VENV)/.packages
INSTALLED := $(VENV)/.installed
EXTRAS := $(VENV)/.extras
SERVING := $(VENV)/.serving
INSTALL := $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
SCENARIO ?= experiments/scenarios/azure.yaml
OUTPUT ?= comparison
TIME_LIMIT ?= 60

.PHONY: compare test library types wheel docs docs-site figure clean

compare: $(INSTALLED)
	$(VENV)/bin/truenorth compare $(SCENARIO) --time-limit $(TIME_LIMIT) -o $(OUTPUT)

test: $(EXTRAS)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports
	$(MAKE) --no-print-directory --jobs 2 types $(SERVING)
	$(VENV)/bin/python -m pytest -n auto --dist worksteal

# Every plan and certificate of the library is checked again, and its page written.
library: $(INSTALLED)
	$(VENV)/bin/python -m experiments library

# What README, docs and notebooks show is run, and written back where it differs; pages that follow from the code, too.
docs: $(SERVING)
	$(VENV)/bin/python -m tests.documentation

# The documentation as a site, in .site/index.html; a warning is an error.
docs-site: $(PACKAGES)
	$(INSTALL) '.[reference]'
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo 'Wrote .site/index.html; with search: python3 -m http.server --directory .site'

# README's picture, from what `make compare` computes.
figure: compare
	$(VENV)/bin/python -m tests.documentation.figure $(OUTPUT)

types: $(EXTRAS)
	$(VENV)/bin/mypy

# What a stranger installs: built, installed elsewhere and asked from an empty folder; minutes, so apart from the tests.
wheel: $(EXTRAS)
	$(VENV)/bin/python -m tests.wheel

$(PACKAGES): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) .
	touch $@

# Kernels are compiled here, once and on several cores, so that no run pays for it; those for batches, shares and streams,
# which the comparison does not need, before the tests. What pip only links to it does not turn into byte code, and where
# none may be written while running every start would.
$(INSTALLED): $(PACKAGES)
	$(VENV)/bin/python -m compileall -q models solvers executor planner experiments
	$(VENV)/bin/python -m truenorth.solvers.warm_up search bound
	touch $@

$(EXTRAS): $(INSTALLED)
	$(INSTALL) '.[dev]'
	touch $@

$(SERVING): $(EXTRAS)
	$(VENV)/bin/python -m truenorth.solvers.warm_up serving queues gangs
	touch $@

clean:
	rm -rf $(VENV) $(OUTPUT)
