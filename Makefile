# `make` alone lists what can be asked for.
PYTHON ?= python3.11
BIN := .venv/bin
PACKAGES := relaxd service compiler artifacts
SOURCES := $(PACKAGES) tests tools benchmarks
C_SOURCES = $(shell find compiler benchmarks -name '*.[ch]' -o -name '*.cc')
# One process more than processors: tests that wait for a server leave theirs to another.
PARALLEL = -n $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 1))) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
# Hundreds of processes of the tests import these packages: one of them compiles a module, not each.
unexport PYTHONDONTWRITEBYTECODE
FAMILIES := tests/compiler/passes/cpu/families

UNITS ?= 128/16 128/32 256/16 512/32

.PHONY: help env demo test long robustness geometry units emulators emulation fuzz hostile zoo stories snippets conformance opinfo images cluster check site structure fmt lock dist clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

env: ## create .venv with pinned packages, or do nothing when it is up to date
	@$(PYTHON) tools/env.py

demo: env ## compile a real model through the service, run it at several shapes, compare with ONNX Runtime
	@$(BIN)/python -m tools.demo

test: env ## run the tests, but for those that take longest, with samples of the zoos and of conformance; those that need Redis, PostgreSQL or an S3 server skip when the servers are not installed
	@$(BIN)/python -m pytest $(PARALLEL) $(ARGS)

long: env ## run the tests that take longest, which `make test` leaves out
	@$(BIN)/python -m pytest $(PARALLEL) -m long $(ARGS)

robustness: env ## hold the service's promises against faults and attacks; ARGS="--scale 0.1 --seed 7 --row NAME" for a part of the counts or one row
	@$(BIN)/python -m tests.robustness $(ARGS)

geometry: env ## run the tests of kernels at the vector units of every class of processor, each family at each of them
	@RELAXD_GEOMETRIES=all $(BIN)/python -m pytest $(PARALLEL) -m '' $(FAMILIES)/test_families.py tests/compiler/passes/test_geometries.py tests/compiler/passes/test_experts.py tests/compiler/passes/test_known_models.py $(ARGS)
	@for unit in 128/16 128/32 256/16 512/32; do \
		echo "geometry $$unit"; \
		RELAXD_GEOMETRY=$$unit $(BIN)/python -m pytest $(PARALLEL) -m '' $(FAMILIES) --ignore $(FAMILIES)/test_families.py $(ARGS) || exit 1; \
	done

units: env ## run `make test` whole as on each class of processor, one after another; UNITS=256/16 for one, ARGS for pytest
	@for unit in $(UNITS); do \
		echo "vector unit $$unit"; \
		$(BIN)/python -m tests.vector_unit $$unit $(PARALLEL) $(ARGS) || exit 1; \
	done

emulators: env ## run small libraries for 32-bit ARM, RISC-V and micro-controllers under emulators: minutes, of which most are spent once on their C libraries
	@RELAXD_EMULATION=all $(BIN)/python -m pytest $(PARALLEL) -m '' tests/compiler/test_cross.py tests/compiler/verify/emulation/test_standalone.py tests/compiler/verify/test_board.py tests/compiler/verify/test_board_integers.py tests/relaxd/packages/test_boards.py $(ARGS)

emulation: emulators ## the same, then MiniLM and a detector of text for every processor: an hour and more on an idle machine; ZOO="--json FILE --resume" goes on where a run stopped
	@$(BIN)/python -m tests.support.cpu_zoo $(ZOO)

fuzz: env ## compare random graphs with ONNX Runtime and float64; ARGS="--seconds 600 --seed 7 --geometry 512/32": two minutes unless asked
	@$(BIN)/python -m tests.fuzz $(ARGS)

hostile: env ## call a small model of every operator that takes positions, extents or lengths with hostile ones, in guarded memory; ARGS="--draws 20 --operator Gather,Resize --flavour wasm --seed 7": 200 draws of each unless asked
	@$(BIN)/python -m tests.fuzz.hostile $(ARGS)

zoo: env ## compile every model of the ONNX and TorchScript zoos and compare with ONNX Runtime and torch: hours; ARGS="--json FILE --resume" goes on where a run stopped
	@$(BIN)/python -m tests.zoo $(ARGS)
	@$(BIN)/python -m tests.torchscript_zoo

stories: env ## follow the tutorials as a newcomer: wheels in fresh environments, one command at a time; ARGS="--transcript FILE"
	@$(BIN)/python -m tools.stories $(ARGS)

snippets: env ## run every block of the documentation, those that take minutes too
	@RELAXD_DOCS=all $(BIN)/python -m pytest -m '' tests/docs $(ARGS)

conformance: env ## run all of ONNX's conformance cases, static and dynamic; ARGS="--filter NAME --mode static" for some: an hour
	@$(BIN)/python -m tests.conformance $(ARGS)

opinfo: env ## run torch's own samples of its operators traced, scripted and exported, static and with an axis symbolic; ARGS="--ops NAME --way traced --json FILE --resume" for some: two hours
	@$(BIN)/python -m tests.opinfo $(ARGS)

images: env ## build both images, run them as docker-compose.yml says, compile a model with them; as root, on Debian: some minutes
	@$(BIN)/python -m tools.images $(ARGS)

cluster: env ## run the pods of the Kubernetes manifests on this machine, by podman and by Kubernetes: migrations, builds, read-only roots, a drain, an update under load, an eviction; as root, on Debian 12: optional, some minutes
	@$(BIN)/python -m tools.cluster $(ARGS)

check: env ## lint, types, layers, language, images, manifests, the documentation's site
	@$(BIN)/ruff check $(wildcard $(SOURCES))
	@$(BIN)/ruff format --check $(wildcard $(SOURCES))
	@$(BIN)/clang-format --dry-run --Werror $(C_SOURCES)
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python -m tools.language
	@$(BIN)/hadolint docker/*.Dockerfile
	@$(BIN)/check-jsonschema --builtin-schema vendor.compose-spec docker-compose.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.github-actions ci/action.yml
	@$(BIN)/check-jsonschema --builtin-schema vendor.gitlab-ci ci/gitlab.yml
	@$(BIN)/python -m tools.kubernetes
	@$(BIN)/python -m tools.site

site: env ## build the documentation's site into build/site/html
	@$(BIN)/python -m tools.site

structure: env ## lines by package, sizes of files and functions, share of comments, import cycles between folders; ARGS="--since COMMIT" for the change
	@$(BIN)/python -m tools.structure $(ARGS)

fmt: env ## format and sort imports
	@$(BIN)/ruff check --fix $(wildcard $(SOURCES))
	@$(BIN)/ruff format $(wildcard $(SOURCES))
	@$(BIN)/clang-format -i $(C_SOURCES)

lock: env ## pin what pyproject.toml asks for, at the versions installed in .venv
	@$(BIN)/python tools/lock.py

dist: env ## build the wheels of relaxd and of relaxd-server into dist/
	@$(BIN)/python -m tools.dist

clean: ## remove what was built: the environment, caches, exported models
	@rm -rf .venv .venv.lock .models .relaxd .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis *.egg-info
	@find $(wildcard $(SOURCES)) -name __pycache__ -type d -prune -exec rm -rf {} +
