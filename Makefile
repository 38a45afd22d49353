# One command per intent, the same here and in CI (.ci/run). Each sets up what it needs.
PYTHON ?= python3
export PYTHON
BIN := .venv/bin
READY := .venv/ready
COMPILED := .venv/compiled

REAL_PACKAGES := containernetworking-plugins iproute2 iptables nftables
TEST_PACKAGES := $(REAL_PACKAGES) gcc libc6-dev zsh fish
SLOW_PACKAGES := $(TEST_PACKAGES) golang-go golang-github-appc-cni-dev podman runc crun busybox-static jq lxc bubblewrap systemd-container xfsprogs btrfs-progs

# More workers than cores: many tests wait for processes. Not loadgroup: it looks through all tests at the end of each.
PARALLEL := -n 4 --dist load
# Tests with real parts see the whole machine, other tests included: what fails beside others is run once more, alone,
# and fails if it fails again. Both runs are printed.
ALONE := -rf --last-failed --last-failed-no-failures none
# Without bytecode files, every worker and every plugin in Python compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE PYTHONUNBUFFERED

.DEFAULT_GOAL := help
.PHONY: help setup demo demo-real demo-runc demo-node demo-podman test test-slow test-newer soak fuzz conformance-go peers check types api frozen format coverage bench docs docs-serve package zipapp clean

help: ## show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: $(READY) ## make .venv with everything that development needs

# "pip install ." in this environment would leave a copy of the sources, which the tests would test.
$(READY): pyproject.toml scripts/setup $(wildcard .venv/lib/python3*/site-packages/libcni/__init__.py)
	@scripts/setup

# Otherwise each worker of the first run compiles all tests.
$(COMPILED): $(READY)
	@$(BIN)/pytest --collect-only -qq >/dev/null 2>&1 || true
	@touch $@

demo: $(READY) ## run a chain of fake plugins and show what happens; needs no root
	@$(BIN)/python examples/demo.py

demo-real: $(READY) ## the same with the real plugins, between two network namespaces; needs root
	@scripts/system-packages $(REAL_PACKAGES)
	@$(BIN)/python examples/demo_real.py

# DOCUMENTS=1 shows every plugin call with its document.
demo-runc: $(READY) ## run two containers with runc and libcni's hook, and let them talk; needs root
	@scripts/system-packages $(REAL_PACKAGES) runc busybox-static
	@$(BIN)/python examples/demo_runc.py $(if $(DOCUMENTS),--documents)

demo-node: $(READY) ## free the addresses of 58 dead pods while three living ones answer; needs root
	@scripts/system-packages $(REAL_PACKAGES)
	@$(BIN)/python examples/demo_node.py

# 77: podman cannot be had here, and the last line says why.
demo-podman: $(READY) ## the same with podman 5 of Debian sid, unpacked below build/; needs root
	@scripts/peers podman -- python3 /repository/examples/demo_podman.py || { status=$$?; [ $$status = 77 ]; }

# Without root the tests with real plugins are skipped and say so; with CI=true they fail then.
# The coverage is measured by "make package", which runs the same tests.
test: $(COMPILED) ## run the tests
	@scripts/system-packages $(TEST_PACKAGES) || true
	@$(BIN)/pytest $(PARALLEL) || $(BIN)/pytest $(ALONE)

# Tests that share a node or runtimes run one by one: TOGETHER in tests/conftest.py.
test-slow: $(COMPILED) ## run the slow suites: simulation, conformance
	@scripts/system-packages $(SLOW_PACKAGES) || true
	@scripts/need peers || true
	@$(BIN)/pytest $(PARALLEL) -m slow tests/sim
	@$(BIN)/pytest -n 4 --dist loadgroup -m slow --ignore=tests/sim || $(BIN)/pytest -m slow --ignore=tests/sim $(ALONE)
	@$(MAKE) --no-print-directory test-newer

# RELEASE=trixie: those of that release. 77: the plugins cannot be had here, and the last line says why.
test-newer: $(COMPILED) ## run the tests with real plugins with those of Debian sid
	@scripts/system-packages $(TEST_PACKAGES) || true
	@scripts/peers plugins -- sh -c '$(BIN)/pytest $(PARALLEL) -m "real and not slow" || $(BIN)/pytest -m "real and not slow" $(ALONE)' || { status=$$?; [ $$status = 77 ]; }

soak: $(READY) ## for longer: 100,000 schedules of the simulated node; more kills, races and power cuts with real plugins
	@PYTHONPATH=tests $(BIN)/python -m sim mixture --seeds 100000 --story
	@LIBCNI_KILLS=300 LIBCNI_REPAIRS=40 LIBCNI_RACES=250 LIBCNI_RELOAD_KILLS=100 LIBCNI_POWER_CUTS=40 \
		LIBCNI_SOAK_ADDS=100000 LIBCNI_SEED=$$(date +%s) \
		$(BIN)/pytest --timeout=0 -n 4 --dist loadgroup -m slow tests/real/test_kills.py tests/real/test_races.py \
		tests/reliability tests/store/test_cut_off.py

fuzz: $(READY) ## fuzz all that takes bytes from others, 100,000 cases for each
	@LIBCNI_FUZZ_CASES=100000 LIBCNI_SEED=$$(date +%s) $(BIN)/pytest --timeout=0 tests/reliability/test_hostile.py tests/kernel/test_netlink.py -k inputs_near_to_good_ones

conformance-go: $(READY) ## run the vectors with Go libcni and write testdata/evidence/differences.md; fails on one without a reason
	@scripts/system-packages golang-go golang-github-appc-cni-dev
	@PYTHONPATH=tests $(BIN)/python -m conformance.differences && echo testdata/evidence/differences.md

# In about ten minutes; what cannot be had is in the table. PEERS="runc podman@sid": only these rows.
peers: $(COMPILED) ## run the tests with other programs and write testdata/evidence/peers.md, with their versions
	@scripts/need peers
	@PYTHONPATH=tests LIBCNI_ALL_SCENARIOS=1 $(BIN)/python -m real.peers_page $(PEERS) && echo testdata/evidence/peers.md

check: $(READY) ## lint and type-check; edits nothing
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

types: $(READY) ## show that the public API is typed completely, and that type checkers refuse doubtful calls
	@scripts/need types
	@# pyright asks the "python" of PATH where the requirements are, and a machine may have none, or another one.
	@PATH="$(CURDIR)/$(BIN):$$PATH" PYTHONPATH=$(CURDIR) pyright --verifytypes libcni --ignoreexternal
	@$(BIN)/python scripts/doubtful_calls.py

api: $(READY) ## write testdata/api.txt, the public API, after a change that is meant
	@$(BIN)/python scripts/api.py

frozen: $(READY) ## write what tests compare to the letter: testdata/api.txt, testdata/cli, the manual, completions, pictures
	@$(BIN)/python scripts/api.py
	@$(BIN)/python scripts/manual.py
	@$(BIN)/python scripts/pictures.py
	@UPDATE_GOLDEN=1 $(BIN)/pytest -q tests/cli/test_golden.py
	@git status --short testdata/api.txt testdata/cli share docs/pictures 2>/dev/null || true

# The formatter first: the linter stops at a line that is too long, which the formatter would fold.
format: $(READY) ## format, and mend what the linter can
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix
	@$(BIN)/ruff format

coverage: $(COMPILED) ## run the tests and write their coverage to htmlcov/index.html
	@rm -f .coverage .coverage.*
	@$(BIN)/coverage run -m pytest $(PARALLEL)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage html --quiet --skip-covered && echo htmlcov/index.html

# BENCH="--quick --only 1,3" for less; BENCH=--write renews the table and the picture in docs/.
bench: $(READY) ## compare with the newest Go libcni, in under 10 minutes
	@scripts/system-packages gcc libc6-dev $(REAL_PACKAGES) || true
	@$(BIN)/python bench/run.py $(BENCH)

docs: $(READY) ## build the documentation into site/
	@scripts/need docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet && echo "site/index.html"
	@if command -v node >/dev/null; then scripts/site-search; fi

docs-serve: $(READY) ## show the documentation, with its search, on http://127.0.0.1:8000
	@scripts/need docs
	@echo http://127.0.0.1:8000 && NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --strict --quiet

package: $(READY) ## build sdist and wheel into dist/, and run the tests with the installed wheel, with branch coverage
	@scripts/system-packages $(TEST_PACKAGES) || true
	@scripts/need package
	@scripts/package

# filelock and PyYAML as pyproject.toml pins them, so that the same sources make the same file everywhere.
zipapp: $(READY) ## write dist/libcni.pyz, the command as one file that needs nothing but Python
	@scripts/need zipapp
	@$(BIN)/python scripts/one_file.py --packages build/zipapp

clean: ## remove all that these commands have made
	@rm -rf .venv build dist site htmlcov .coverage .coverage.* .mypy_cache .ruff_cache .pytest_cache .hypothesis
	@find . -name __pycache__ -prune -exec rm -rf {} +
