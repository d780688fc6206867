# Commands of this repository; `make` alone lists them.
PY := .venv/bin/python
UNIT := not slow and not browser and not chaos and not gpu and not nightly
ARGS ?=
# Tests of one file stay together: they share engines and clusters. In the order of the folders, slow files come early.
SPREAD ?= -n 2 --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup lock lock-gpu test test-unit lint demo up down

help:  ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## make .venv from the lock file (nothing to do when it is current)
	@sh infra/setup.sh

lock:  ## pin infra/requirements.in anew
	@sh infra/lock.sh

lock-gpu:  ## pin infra/requirements-gpu.in (CUDA; not yet run on a GPU)
	@sh infra/lock.sh gpu

test: setup  ## all tests but those for GPUs and the nightly ones
	$(PY) -m pytest $(SPREAD) -m "not gpu and not nightly" $(ARGS)

test-unit: setup  ## the quick tests: no engine, no Ray, no browser
	$(PY) -m pytest $(SPREAD) -m "$(UNIT)" $(ARGS)

lint: setup  ## ruff
	$(PY) -m ruff check .

demo: setup  ## start the services, train the tiny model and watch the endpoint change (ARGS are passed on)
	$(PY) -m jobs.demo $(ARGS)

up: setup  ## start Ray and MLflow on free local ports
	$(PY) -m jobs.services up $(ARGS)

down: setup  ## stop what `make up` started
	$(PY) -m jobs.services down $(ARGS)
