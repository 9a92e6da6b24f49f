# Everything a fresh machine needs is Python 3.11 and pip.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slow check docs bench attack licences hashes clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "Python 3.11 is needed: install it, or say make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,mmdet,ray,report]'
	$(BIN)/python -m saod_ray.score.warm
	$(BIN)/python -m saod_ray.corrupt.warm
	touch $(STAMP)

demo: setup
	$(BIN)/saod-ray run

test: setup
	$(BIN)/python -m pytest -n 2 -m 'not slow'

# kills, full disks, clusters of several nodes, and what is only true of a real run's figures
test-slow: demo
	SAOD_SHAPES_RUN=runs/shapes $(BIN)/python -m pytest -n 2 -m slow

check: setup
	$(BIN)/ruff check saod_ray tests benchmarks examples jobs tools
	$(BIN)/ruff format --check saod_ray tests benchmarks examples jobs tools
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo build/site/index.html

# about an hour; docs/performance.md has what they print
BENCHMARKS := score reducers ap import_json shards bootstrap sweeps corruptions objects365 detect shapes stream simulate serve

bench: $(addprefix bench-,$(BENCHMARKS))

bench-%: setup
	$(BIN)/python -m benchmarks.$*

# under five minutes; SEED=7 for another one
attack: setup
	$(BIN)/python -m benchmarks.attack $(or $(SEED),0)

licences: setup
	$(BIN)/python tools/licences.py

# the digests of the packages for this platform
hashes: setup
	$(BIN)/python tools/hashes.py constraints.txt constraints.hashes.txt

clean:
	rm -rf $(VENV) runs build *.egg-info
