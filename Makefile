# Each target does all of its own set-up: `make demo` and `make test` work as the first command on a fresh machine.

PYTHON ?= python3
VENV := .venv
FRAMEWORKS := .venv-frameworks
UNMODIFIED := .venv-jobs
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BACKEND ?= nsight
NSYS ?= $(shell command -v nsys)
TESTS ?=
CHECKOUTS ?=
SEED ?= default
COUNT ?= 5000
TRUTH ?=
SOURCES := pyproject.toml timing/pyproject.toml timing/hatch_build.py timing/src/gpuprof_timing/_hot.c backends/nsight/pyproject.toml backends/nsight/hatch_build.py \
	backends/nsight/src/gpuprof_nsight/_nvtx/compiled.c backends/rocprof_sys/pyproject.toml testing/pyproject.toml \
	frameworks/verl/pyproject.toml frameworks/rlinf/pyproject.toml frameworks/nemo_rl/pyproject.toml frameworks/sample_factory/pyproject.toml \
	examples/third_party_backend/pyproject.toml examples/py_spy/pyproject.toml
PROJECTS := timing . backends/nsight backends/rocprof_sys testing \
	frameworks/verl frameworks/rlinf frameworks/nemo_rl frameworks/sample_factory
PYTHONS ?= python3.10 python3.12 python3.13
# Three processes for two cores, since many tests wait. tests/support/sharing.py distributes the files, in the order of tests/conftest.py.
PARALLEL := -n 3 --dist loadfile --no-loadscope-reorder

.PHONY: help setup demo test test-pure test-nsys test-exhaustive test-random test-pythons test-faults gpu test-frameworks test-jobs truth truth-diff truth-adversary truth-real fuzz check bench docs dist release-dry-run pictures clean
.DEFAULT_GOAL := help

help: ## what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) ## make .venv with everything that the demo and the tests need

$(READY): scripts/setup.sh $(SOURCES)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	@touch $@

demo: $(READY) ## train PPO on Ray, capture three steps of two groups (BACKEND=nsight, rocprof_sys, torch_profiler, py_spy, none)
	@$(BIN)/python examples/ray_ppo/train.py --backend $(BACKEND) --timing-only-without-tool

test: $(READY) ## the whole test suite; what needs nsys is skipped without it, unless GPUPROF_REQUIRE_NSYS=1
	@$(BIN)/python -m pytest $(PARALLEL)

test-pure: $(READY) ## the tests of scopes in Python: `make test` has them compiled, where there is a compiler
	@GPUPROF_TIMING_PURE=1 $(BIN)/python -m pytest $(PARALLEL) tests/timing timing/src --ignore tests/timing/test_perfetto.py

test-nsys: $(READY) ## only what runs nsys; another release of it: make test-nsys NSYS=/usr/local/bin/nsys-trixie TESTS=tests/nsight
	@[ -n "$(NSYS)" ] || { echo "make test-nsys: nsys is not on PATH (scripts/install-nsys.sh)" >&2; exit 1; }
	@directory=$$(mktemp -d) && ln -s "$(NSYS)" $$directory/nsys && PATH="$$directory:$$PATH" GPUPROF_REQUIRE_NSYS=1 \
		$(BIN)/python -m pytest $(PARALLEL) -m nsys $(or $(TESTS),tests); code=$$?; rm -r $$directory; exit $$code

test-exhaustive: $(READY) ## every combination of what the other runs try in one, and ten times as many examples of properties
	@$(BIN)/python -m pytest $(PARALLEL) --exhaustive --hypothesis-profile many -m "exhaustive or hypothesis"

test-random: $(READY) ## the suite in random order, what needs nsys aside; to repeat one: make test-random SEED=...
	@$(BIN)/python -m pytest $(PARALLEL) -p randomly --randomly-seed=$(SEED) -m "not nsys"

# Without torch: where there is no CPU build of it for a Python, it is several gigabytes.
test-pythons: ## the suite without nsys and torch on the other Pythons: make test-pythons PYTHONS="python3.10 python3.13"
	@PYTEST="$(PARALLEL)" sh scripts/test-pythons.sh $(PYTHONS)

test-faults: $(READY) ## the tests of what happens when things die, ten rounds; nothing is tried again but where nsys has lost all ranges
	@for round in 1 2 3 4 5 6 7 8 9 10; do $(BIN)/python -m pytest -v --no-header --exhaustive -m fault --only-rerun=NoRanges || exit 1; done

gpu: ## all that needs a card, without a network: scripts/gpu-wheels.sh fills .gpu-wheels before; writes gpu.md
	@PYTHON="$(PYTHON)" sh scripts/gpu.sh

# An environment of its own: the frameworks ask for older releases of much that the other tests use. A process for each framework,
# whose tests share its jobs.
test-frameworks: ## released verl and RLinf on CPUs; skipped, and counted, if the packages cannot be had; CHECKOUTS=... adds their sources
	@sh scripts/frameworks.sh $(FRAMEWORKS); code=$$?; if [ $$code = 3 ]; then echo "1 skipped: the frameworks cannot be installed"; exit 0; \
	elif [ $$code != 0 ]; then exit $$code; fi; \
	directory=$$(mktemp -d); [ -z "$(NSYS)" ] || ln -s "$(NSYS)" $$directory/nsys; \
	PATH="$$directory:$$PATH" CHECKOUTS="$(CHECKOUTS)" $(FRAMEWORKS)/bin/python -m pytest -n 3 --dist loadfile $(or $(TESTS),tests/frameworks); \
	code=$$?; rm -r $$directory; exit $$code

test-jobs: ## unmodified jobs of Transformers, Lightning, TRL and Ray's libraries on CPUs; skipped, and counted, if the packages cannot be had
	@sh scripts/jobs.sh $(UNMODIFIED); code=$$?; if [ $$code = 3 ]; then echo "1 skipped: the jobs' libraries cannot be installed"; exit 0; \
	elif [ $$code != 0 ]; then exit $$code; fi; \
	$(UNMODIFIED)/bin/python -m pytest $(or $(TESTS),tests/jobs)

truth-diff: $(READY) ## how often `gpuprof diff` finds what is 10 % slower, in simulated and real runs: make truth-diff SETS=60 REAL=6 SEED=1
	@$(BIN)/python tests/truth/changes.py --sets $(or $(SETS),60) --real $(or $(REAL),0) --seed $(if $(filter default,$(SEED)),0,$(SEED))

truth-adversary: $(READY) ## search for jobs whose answers of `gpuprof explain` are wrong: make truth-adversary MINUTES=30 SEED=1
	@$(BIN)/python tests/truth --adversary $(or $(MINUTES),10) --seed $(if $(filter default,$(SEED)),0,$(SEED))

truth-real: $(READY) ## the same on small jobs that run, on Ray and torchrun: make truth-real RUNS=5
	@$(BIN)/python tests/truth/real.py --runs $(or $(RUNS),1)

truth: $(READY) ## how often `gpuprof explain` is right, on generated jobs: make truth SEED=7 COUNT=200; on others than it was tuned for: TRUTH="--suite fresh"
	@$(BIN)/python tests/truth --seed $(if $(filter default,$(SEED)),0,$(SEED)) --count $(if $(filter file,$(origin COUNT)),200,$(COUNT)) $(TRUTH)

fuzz: $(READY) ## damaged inputs of all kinds, until the first that ends badly; to repeat one: make fuzz SEED=7 COUNT=1
	@$(BIN)/python tests/fuzz --seed $(if $(filter default,$(SEED)),0,$(SEED)) --count $(COUNT)

check: $(READY) ## lint, formatting, types; the import direction is a test of its own
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/python -m pytest -q tests/test_imports.py

bench: $(READY) ## the benchmarks; fails at the end if a goal was missed
	@sh scripts/pip.sh $(VENV) install --group bench
	@sh scripts/pip.sh $(VENV) install --no-deps sample-factory lightning torchmetrics
	@missed=0; for file in benchmarks/*.py; do echo "== $$file"; $(BIN)/python $$file || missed=1; done; exit $$missed

docs: $(READY) ## the documentation's site, in site/; a warning is an error
	@sh scripts/pip.sh $(VENV) install --group docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --clean

pictures: $(READY) ## draw a step of the demo for the README and the site, in light and dark
	@directory=$$(mktemp -d) && $(BIN)/python examples/ray_ppo/train.py --backend none --output-dir $$directory \
		&& $(BIN)/python scripts/step_picture.py $$directory/* docs/images/step; code=$$?; rm -r $$directory; exit $$code

dist: $(READY) ## build all distributions into dist/, check them, and install each into an empty environment
	@sh scripts/pip.sh $(VENV) install --group release
	@rm -rf dist
	@for project in $(PROJECTS); do $(BIN)/python -m build --no-isolation --outdir dist $$project >/dev/null || exit 1; done
	@$(BIN)/twine check --strict dist/*
	@$(BIN)/check-wheel-contents dist/*.whl
	@DISTRIBUTIONS=$(CURDIR)/dist $(BIN)/python -m pytest -q --exhaustive tests/packaging

release-dry-run: $(READY) ## all that a release does, but publish: build without a network, check, install for each Python here, run the demo, build the site
	@sh scripts/pip.sh $(VENV) install --group release
	@scripts/release-dry-run.sh

clean: ## remove what was made
	rm -rf $(VENV) $(FRAMEWORKS) $(UNMODIFIED) .venv-3.* dist site gpuprof-output .mypy_cache .pytest_cache .ruff_cache .hypothesis
