# Every target does its own set-up: a machine needs Python >= 3.11 and make, nothing else.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

# Where this is set, Python compiles all of us anew for every process, and the tests start a thousand of them.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo test check model bench bench-all bench-store bench-docs chaos soak docs render format requirements wheel clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

demo: $(VENV)/.demo ## 302 jobs, three workers, one of them killed; a quarter of a minute
	@$(BIN)/leftfold demo

# One worker more than there are cores: many tests wait, for a process to end or a server to start.
WORKERS = $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1)
PURE    = tests/unit tests/dialects

test: $(VENV)/.dev ## run every test; core/ and dialects/ under branch coverage, which would slow all others down by half
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal --cov --cov-report term $(PURE)
	$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist worksteal $(addprefix --ignore=,$(PURE))

check: $(VENV)/.dev ## ruff, mypy --strict, import direction and the other style tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy & types=$$!; $(BIN)/python -m pytest -q tests/tidy; style=$$?; wait $$types && exit $$style

model: $(VENV)/.demo ## search the lifecycle exhaustively and check the dialects
	$(BIN)/leftfold lifecycle check

bench: $(VENV)/.dev ## Leftfold, its fastest peers and bare SQL side by side; a quarter of an hour, fails if a target is missed or not judged
	@mkdir -p dist
	$(BIN)/python -m bench --out dist/bench.json

bench-all: $(VENV)/.dev ## the same with all fourteen peers, those on Redis too, and a million jobs; hours
	@mkdir -p dist
	$(BIN)/python -m bench --all --out dist/bench-all.json

bench-store: $(VENV)/.dev ## our stores against bare SQL on the same tables, operation by operation; ten minutes
	$(BIN)/python -m bench.store

RESULTS ?= dist/bench.json

bench-docs: $(VENV)/.dev ## write RESULTS=dist/bench.json, of `make bench` or `bench-all`, into docs/benchmarks.md and its plots
	$(BIN)/python -m bench.docs $(RESULTS)

MINUTES ?= 10

chaos: $(VENV)/.dev ## kill, stop and cut workers, clients and stores for MINUTES=10, and check that nothing was lost
	$(BIN)/python -m chaos --minutes $(MINUTES)
	LEFTFOLD_KILLS=200 $(BIN)/python -m pytest -q tests/crash/test_kills.py

soak: $(VENV)/.dev ## all of what `make test` does a part of: kit, model, bugs, schedules, a million rows; hours
	LEFTFOLD_KIT=all $(BIN)/python -m pytest -q --numprocesses auto tests/conformance
	LEFTFOLD_MODEL=all LEFTFOLD_PLANTED=all $(BIN)/python -m pytest -q --numprocesses auto tests/model
	LEFTFOLD_PLANTED=all $(BIN)/python -m pytest -q --numprocesses auto tests/store/test_planted.py
	LEFTFOLD_INTERLEAVE=all $(BIN)/python -m pytest -q --numprocesses auto tests/interleave
	LEFTFOLD_PLANS_ROWS=1000000 $(BIN)/python -m pytest -q tests/plans

docs: $(VENV)/.demo ## render the diagrams and tables into docs/
	$(BIN)/python docs/render.py

render: $(VENV)/.dev ## render the async engine from the sync one
	$(BIN)/python scripts/render_async.py
	$(BIN)/ruff check --fix-only -q src/leftfold/aengine
	$(BIN)/ruff format -q src/leftfold/aengine

format: $(VENV)/.dev ## let ruff fix and format what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

requirements: $(VENV)/.dev ## pin the newest versions in requirements/*.txt
	$(PIP) install uv
	cd requirements && for f in demo dev; do ../$(BIN)/uv pip compile --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-emit-find-links --quiet \
	  --custom-compile-command "make requirements" $$f.in -o $$f.txt; done

wheel: $(VENV)/.dev ## build the wheel into dist/
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean: ## remove everything that the other targets made
	rm -rf $(VENV) dist .coverage .mypy_cache .ruff_cache .pytest_cache .hypothesis

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Leftfold needs Python 3.11 or newer; try: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: $(BIN)/python pyproject.toml requirements/demo.txt
	$(PIP) install --require-hashes -r requirements/demo.txt
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo requirements/dev.txt
	$(PIP) install --require-hashes -r requirements/dev.txt
	@touch $@
