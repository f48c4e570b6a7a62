# `make` lists the targets. Everything runs in a virtual environment of this checkout (.venv).
PYTHON ?= python3.11
VENV   ?= .venv
BIN    := $(VENV)/bin
OUT    ?= runs/quickstart
.DEFAULT_GOAL := help
.PHONY: help setup quickstart up test check bench proto fmt clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*?## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# torch is pinned and named on the same command line, so pip takes that build and no other; on a
# machine whose index offers only CUDA builds, set PIP_EXTRA_INDEX_URL to PyTorch's CPU wheels first.
$(VENV)/.installed: pyproject.toml deploy/packaging/fbgemm-gpu-shim/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check \
	    torch==2.13.0 ./deploy/packaging/fbgemm-gpu-shim -e '.[quickstart,dev]'
	@rm -rf deploy/packaging/fbgemm-gpu-shim/build deploy/packaging/fbgemm-gpu-shim/*.egg-info
	@touch $@

setup: $(VENV)/.installed  ## make the virtual environment and install everything

quickstart: setup  ## real log -> foundation model -> vertical -> ranked answers; report in runs/quickstart
	$(BIN)/gemcutter quickstart --out $(OUT)

up: setup  ## leave store, worker and ranker running on the quick start's models
	$(BIN)/gemcutter up --run $(OUT)

test: setup  ## the whole test suite
	$(BIN)/pytest -m ""

check: setup  ## lint, types, import contracts, sizes, unit tests: under two minutes
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	OMP_NUM_THREADS=1 $(BIN)/pytest -q -n auto -m "not slow and not integration"

bench: setup  ## measure and append rows to docs/results
	$(BIN)/gemcutter loadtest --run $(OUT) --record

proto: setup  ## regenerate protos/*_pb2*.py from the .proto files
	$(BIN)/python -m grpc_tools.protoc -I. --python_out=. --pyi_out=. --grpc_python_out=. protos/ranking.proto protos/events.proto

fmt: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove the virtual environment and every run
	rm -rf $(VENV) runs
