# Two commands: `make demo` shows what this is, `make test` shows that it works.
# PYTHON chooses the Python that .venv is made from (3.10 or newer).

PYTHON ?= python3
BIN := .venv/bin
EXTRAS := mujoco,box2d,atari,robotics,mpi,gym,ray,tensorboard,wandb,onnx,dev
DEMO := data/demo/demo_s0

.PHONY: setup demo test bench bench-quick stress fuzz clean
.DEFAULT_GOAL := demo

setup: .venv/ready

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 10) or sys.exit("spinup needs Python 3.10 or newer: make PYTHON=python3.12")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade --constraint constraints.txt pip setuptools
	$(BIN)/python -m pip install --constraint constraints.txt --no-build-isolation \
		--editable '.[$(EXTRAS)]'
	touch $@

demo: .venv/ready
	$(BIN)/spinup ppo --env CartPole-v1 --seed 0 --exp_name demo --epochs 25 --num_envs 4 \
		--pi_lr 1e-3 --vf_lr 3e-3 --lam 0.95 --target_kl 0.02 --minibatch_size 250 \
		--train_pi_iters 10 --train_v_iters 10
	$(BIN)/spinup plot $(DEMO) -o $(DEMO)/curve.png
	$(BIN)/spinup watch $(DEMO) --deterministic --seed 0 --episodes 1 --video $(DEMO)/agent.mp4
	@echo
	@echo 'Look at  $(DEMO)/curve.png  (how it learned)  and  $(DEMO)/agent.mp4  (how it plays).'
	@echo 'Then try:'
	@echo '    $(BIN)/spinup sac --env Pendulum-v1 --epochs 10 --steps_per_epoch 1000 --hid [64,64]'
	@echo '    $(BIN)/spinup watch data/cmd_sac/cmd_sac_s0 --video pendulum.mp4'
	@echo '    $(BIN)/spinup ppo --help'
	@echo 'and read spinup/algos/pytorch/ppo/README.md, then ppo.py beside it.'

test: .venv/ready
	$(BIN)/python -m pytest --numprocesses 2 --dist worksteal --durations 10

# The libraries that speed is compared with have a Python of their own.
.venv-peers/ready: benchmarks/constraints-peers.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --constraint benchmarks/constraints-peers.txt \
		torch stable-baselines3 sb3-contrib sbx-rl tianshou mujoco imageio
	touch $@

bench: .venv/ready
	-$(MAKE) .venv-peers/ready  # whoever cannot be installed is left out
	$(BIN)/python benchmarks/speed.py --results

bench-quick: .venv/ready
	-$(MAKE) .venv-peers/ready
	$(BIN)/python benchmarks/speed.py --quick

stress: .venv/ready
	$(BIN)/python benchmarks/stress_kills.py

fuzz: .venv/ready
	$(BIN)/python benchmarks/fuzz.py

clean:
	rm -rf .venv .venv-peers build dist *.egg-info
