# make test: everything a change has to pass, from a fresh clone. Needs Python 3.11 or later with pip; nothing else.
.PHONY: help test test-all check proof lint types docs reference faults mutants demo clean
.DEFAULT_GOAL := help
export PYTHONSAFEPATH := 1
# the tests' networks are tiny: threads would only wait for each other
export OMP_NUM_THREADS ?= 1

PYTHON ?= python3
PYTEST_FLAGS ?=
# how many processes run tests; each takes whole files, so that what a file prepares is prepared once
JOBS ?= 2
PARALLEL := -n $(JOBS) --dist loadfile
VENV := .venv
RUN := $(VENV)/bin
# The environment is rebuilt whenever what it was made from has changed, or when the folder has moved.
KEY := $(shell { cat pyproject.toml constraints.txt plugins/crown/kernel/*.[ch]; pwd; $(PYTHON) --version; } | cksum | tr ' ' '-')
READY := $(VENV)/ready-$(KEY)
DOCS_READY := $(VENV)/docs-$(KEY)
TYPES := build/types

help:
	@echo "make test      install into $(VENV), check style and types, run the tests (all that a change must pass)"
	@echo "make test-all  the same with the slow tests"
	@echo "make check     style and types only"
	@echo "make docs      the documentation as a site in build/site, every link checked"
	@echo "make reference write the generated pages of docs/reference anew"
	@echo "make faults    seed known kinds of faults one at a time: do the tests fail on each? (an hour)"
	@echo "make mutants   400 small changes of the trust base: the share that the tests notice (hours; goes on where it stopped)"
	@echo "make proof     the proved checker of certificates in build/proof (needs coq, ocaml, ocaml-findlib and zarith)"
	@echo "make demo      from nothing to a proof, a counterexample and pictures in out/"
	@echo "make clean     remove everything that was built"

$(READY):
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or later is needed: make PYTHON=...")'
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --constraint constraints.txt "setuptools>=77"
	$(RUN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[dev]"
	touch $@

$(DOCS_READY): $(READY)
	$(RUN)/python -m pip install --quiet --constraint constraints.txt --no-build-isolation --editable ".[docs]"
	touch $@

test: check
	$(RUN)/python -m pytest $(PARALLEL) $(PYTEST_FLAGS)

test-all: check
	$(RUN)/python -m pytest $(PARALLEL) -m "slow or not slow" $(PYTEST_FLAGS)

check: lint types

lint: $(READY)
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .

# The folders core, plugins and vnnlib are imported as one package, verifolio; mypy sees that package as links.
types: $(READY)
	rm -rf $(TYPES)
	mkdir -p $(TYPES)/verifolio
	ln -s $(CURDIR)/core/* $(CURDIR)/plugins $(CURDIR)/vnnlib $(TYPES)/verifolio
	ln -s $(CURDIR)/checker/verifolio_check $(CURDIR)/tests $(CURDIR)/examples $(CURDIR)/benchmarks $(CURDIR)/docs $(CURDIR)/proof $(TYPES)
	cd $(TYPES) && MYPYPATH=examples/third_party $(CURDIR)/$(RUN)/mypy --config-file $(CURDIR)/pyproject.toml --cache-dir $(CURDIR)/.mypy_cache \
		--explicit-package-bases --namespace-packages verifolio verifolio_check tests examples benchmarks docs proof

docs: $(DOCS_READY)
	NO_MKDOCS_2_WARNING=1 $(RUN)/mkdocs build --strict --quiet

# every generator writes its own page, and tests/test_docs.py runs each with --check
reference: $(READY)
	for script in docs/build_*.py; do $(RUN)/python $$script || exit 1; done
	$(RUN)/python -P -m verifolio.cli.reference

faults: $(READY)
	PYTHONPATH=$(CURDIR) $(RUN)/python -m benchmarks.mutants faults

mutants: $(READY)
	PYTHONPATH=$(CURDIR) $(RUN)/python -m benchmarks.mutants run --count 400 --seed 0

proof:
	$(MAKE) --no-print-directory -C proof BUILD=$(CURDIR)/build/proof

demo: $(READY)
	$(RUN)/python examples/demo/demo.py

clean:
	rm -rf $(VENV) build out .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
	rm -f plugins/crown/kernel/_*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
