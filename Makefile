# A fresh machine needs Python 3.11 or newer, and pip. Python 3.11 is the version that is tested.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: setup demo test test-slow check docs bench attack licences hashes clean

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is required: install it, or run make PYTHON=/path/to/python3.11"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,docs,mmdet,ray,report]'
	$(BIN)/python -m saod_ray.score.warm
	$(BIN)/python -m saod_ray.corrupt.warm
	touch $(STAMP)

demo: setup
	$(BIN)/saod-ray run
	@echo
	@echo "The report is runs/shapes/report.html. Next steps:"
	@echo "  source $(BIN)/activate"
	@echo "  saod-ray report runs/shapes --open"
	@echo "  saod-ray score runs/shapes --calibrator isotonic --out iso/results.json"
	@echo "  saod-ray run --help"

test: setup
	$(BIN)/python -m pytest -n 2 -m 'not slow'

# tests that kill processes, fill disks, start clusters of several nodes or read the results of a real run
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

# takes about an hour; docs/performance.md shows the output
BENCHMARKS := score reducers ap import_json shards bootstrap sweeps corruptions objects365 detect shapes stream simulate serve

bench: $(addprefix bench-,$(BENCHMARKS))

bench-%: setup
	$(BIN)/python -m benchmarks.$*

# takes less than five minutes; SEED=7 sets the seed
attack: setup
	$(BIN)/python -m benchmarks.attack $(or $(SEED),0)

licences: setup
	$(BIN)/python tools/licences.py

# SHA-256 digests of all packages for this platform
hashes: setup
	$(BIN)/python tools/hashes.py constraints.txt constraints.hashes.txt

clean:
	rm -rf $(VENV) runs build *.egg-info
