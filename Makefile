# Two commands: `make demo` shows what this is, `make test` shows that it works; `make help` lists
# the others, from what stands behind `##`.
# PYTHON chooses the Python that .venv is made from (3.10 or newer).

PYTHON ?= python3
BIN := .venv/bin
EXTRAS := mujoco,box2d,atari,robotics,mpi,gym,tf,ray,tensorboard,wandb,onnx,dev
DEMO := data/demo/demo_s0

.PHONY: help setup demo test lint types shell bench bench-quick stress fuzz clean
.DEFAULT_GOAL := demo

help:  ## this list
	@awk -F ':.*  ## ' '/^[a-z-]+:.*  ## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

setup: .venv/ready  ## install everything into .venv, in the versions of constraints.txt

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("spinup needs Python 3.10 or newer: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip setuptools
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation \
		--editable '.[$(EXTRAS)]'
	touch $@

demo: .venv/ready  ## train PPO for half a minute, draw its curve, record a video
	$(BIN)/spinup ppo --env CartPole-v1 --seed 0 --exp_name demo --epochs 25 --num_envs 4 \
		--pi_lr 1e-3 --vf_lr 3e-3 --lam 0.95 --target_kl 0.02 --minibatch_size 250 \
		--train_pi_iters 10 --train_v_iters 10
	$(BIN)/spinup plot $(DEMO) -o $(DEMO)/curve.png
	$(BIN)/spinup watch $(DEMO) --deterministic --seed 0 --episodes 1 --video $(DEMO)/agent.mp4
	@echo
	@echo 'Look at  $(DEMO)/curve.png  (how it learned)  and  $(DEMO)/agent.mp4  (how it plays).'
	@echo 'Then try:'
	@echo '    $(BIN)/spinup sac --env Pendulum-v1 --epochs 10 --steps_per_epoch 1000 --hid "[64,64]"'
	@echo '    $(BIN)/spinup watch data/cmd_sac_pytorch/cmd_sac_pytorch_s0 --video pendulum.mp4'
	@echo '    $(BIN)/spinup ppo --help'
	@echo 'and read spinup/algos/pytorch/ppo/README.md, then ppo.py beside it.'

test: .venv/ready  ## the whole suite, in two processes
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 10

lint: .venv/ready  ## what ruff has to say about style and layout
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check

types: .venv/ready  ## whether annotations are true, by mypy
	$(BIN)/python -m mypy

# In fast mode an update is replayed without its Python lines, so a breakpoint there is not reached.
shell: export SPINUP_FAST := 0
shell: .venv/ready  ## a Python to debug in: fast mode off, IPython if it is installed
	@$(BIN)/python -c 'import IPython' 2>/dev/null && ipython='-m IPython'; \
	$(BIN)/python $$ipython -i -c 'import spinup; from spinup import user_config; \
		print(f"spinup {spinup.__version__}, user_config.FAST = {user_config.FAST}")'

# The libraries that speed is compared with have a Python of their own.
.venv-peers/ready: benchmarks/constraints-peers.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --constraint benchmarks/constraints-peers.txt \
		torch stable-baselines3 sb3-contrib sbx-rl tianshou mujoco imageio
	touch $@

bench: .venv/ready  ## speed against other libraries, written to benchmarks/RESULTS.md
	-$(MAKE) .venv-peers/ready  # whoever cannot be installed is left out
	$(BIN)/python benchmarks/speed.py --results

bench-quick: .venv/ready  ## the same on fewer and shorter cases, not written
	-$(MAKE) .venv-peers/ready
	$(BIN)/python benchmarks/speed.py --quick

stress: .venv/ready  ## kill runs at random instants and resume them
	$(BIN)/python benchmarks/stress_kills.py

fuzz: .venv/ready  ## random command lines, damaged run folders and updates: no traceback, no hang
	$(BIN)/python benchmarks/fuzz.py

clean:  ## remove what `make setup` made
	rm -rf .venv .venv-peers build dist *.egg-info
