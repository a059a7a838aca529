"""Every name and signature that existing scripts rely on is there (COMPAT)."""

import inspect
from importlib import import_module

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from torch import nn

NO_DEFAULT = inspect.Parameter.empty
CORE_FUNCTIONS = dict(
    mlp="sizes activation output_activation=Identity",
    combined_shape="length shape=None",
    count_vars="module",
)
DETERMINISTIC_NETWORKS = dict(
    MLPActor="obs_dim act_dim hidden_sizes activation act_limit",
    MLPQFunction="obs_dim act_dim hidden_sizes activation",
    MLPActorCritic="observation_space action_space hidden_sizes=(256,256) activation=ReLU",
)
ON_POLICY_CORE = dict(
    **CORE_FUNCTIONS,
    discount_cumsum="x discount",
    MLPCategoricalActor="obs_dim act_dim hidden_sizes activation",
    MLPGaussianActor="obs_dim act_dim hidden_sizes activation",
    MLPCritic="obs_dim hidden_sizes activation",
    MLPActorCritic="observation_space action_space hidden_sizes=(64,64) activation=Tanh",
    **{"Actor.forward": "self obs act=None"},
)
TF1_ON_POLICY_CORE = dict(
    combined_shape="length shape=None",
    placeholder="dim=None",
    placeholders="",
    placeholder_from_space="space",
    placeholders_from_spaces="",
    mlp="x hidden_sizes=(32,) activation=tanh output_activation=None",
    get_vars="scope=",
    count_vars="scope=",
    gaussian_likelihood="x mu log_std",
    discount_cumsum="x discount",
    mlp_categorical_policy="x a hidden_sizes activation output_activation action_space",
    mlp_gaussian_policy="x a hidden_sizes activation output_activation action_space",
    mlp_actor_critic="x a hidden_sizes=(64,64) activation=tanh output_activation=None policy=None "
    "action_space=None",
)
SIGNATURES = {
    "spinup.algos.pytorch.reinforce.core": ON_POLICY_CORE,
    "spinup.algos.pytorch.vpg.core": ON_POLICY_CORE,
    "spinup.algos.pytorch.ppo.core": ON_POLICY_CORE,
    "spinup.algos.pytorch.trpo.core": ON_POLICY_CORE,
    "spinup.algos.pytorch.ddpg.core": dict(**CORE_FUNCTIONS, **DETERMINISTIC_NETWORKS),
    "spinup.algos.pytorch.td3.core": dict(**CORE_FUNCTIONS, **DETERMINISTIC_NETWORKS),
    "spinup.algos.pytorch.sac.core": dict(
        **CORE_FUNCTIONS,
        MLPQFunction="obs_dim act_dim hidden_sizes activation",
        SquashedGaussianMLPActor="obs_dim act_dim hidden_sizes activation act_limit",
        MLPActorCritic="observation_space action_space hidden_sizes=(256,256) activation=ReLU",
    ),
    "spinup.algos.pytorch.vpg.vpg": dict(
        vpg="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=50 gamma=0.99 pi_lr=0.0003 vf_lr=0.001 train_v_iters=80 lam=0.97 "
        "max_ep_len=1000 logger_kwargs=None save_freq=10",
        VPGBuffer="obs_dim act_dim size gamma=0.99 lam=0.95",
    ),
    "spinup.algos.pytorch.acer.core": dict(
        mlp=CORE_FUNCTIONS["mlp"],
        count_vars="module",
        MLPActorCritic="observation_space action_space hidden_sizes=(64,64) activation=Tanh",
    ),
    "spinup.algos.pytorch.acer.acer": dict(
        acer="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000",
        SegmentBuffer="obs_dim num_actions size n_steps",
    ),
    "spinup.algos.pytorch.ppo.ppo": dict(
        ppo="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=50 gamma=0.99 clip_ratio=0.2 pi_lr=0.0003 vf_lr=0.001 train_pi_iters=80 "
        "train_v_iters=80 lam=0.97 max_ep_len=1000 target_kl=0.01 logger_kwargs=None save_freq=10",
        PPOBuffer="obs_dim act_dim size gamma=0.99 lam=0.95",
    ),
    "spinup.algos.pytorch.ddpg.ddpg": dict(
        ddpg="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=100 replay_size=1000000 gamma=0.99 polyak=0.995 pi_lr=0.001 q_lr=0.001 "
        "batch_size=100 start_steps=10000 update_after=1000 update_every=50 act_noise=0.1 "
        "num_test_episodes=10 max_ep_len=1000 logger_kwargs=None save_freq=1",
        ReplayBuffer="obs_dim act_dim size",
    ),
    "spinup.algos.pytorch.td3.td3": dict(
        td3="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=100 replay_size=1000000 gamma=0.99 polyak=0.995 pi_lr=0.001 q_lr=0.001 "
        "batch_size=100 start_steps=10000 update_after=1000 update_every=50 act_noise=0.1 "
        "target_noise=0.2 noise_clip=0.5 policy_delay=2 "
        "num_test_episodes=10 max_ep_len=1000 logger_kwargs=None save_freq=1",
        ReplayBuffer="obs_dim act_dim size",
    ),
    "spinup.algos.pytorch.trpo.trpo": dict(
        trpo="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=50 gamma=0.99 delta=0.01 vf_lr=0.001 train_v_iters=80 damping_coeff=0.1 "
        "cg_iters=10 backtrack_iters=10 backtrack_coeff=0.8 lam=0.97 max_ep_len=1000 "
        "logger_kwargs=None save_freq=10 algo=trpo",
        GAEBuffer="obs_dim act_dim size gamma=0.99 lam=0.95",
    ),
    "spinup.algos.pytorch.sac.sac": dict(
        sac="env_fn actor_critic=MLPActorCritic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=100 replay_size=1000000 gamma=0.99 polyak=0.995 lr=0.001 alpha=0.2 batch_size=100 "
        "start_steps=10000 update_after=1000 update_every=50 num_test_episodes=10 "
        "max_ep_len=1000 logger_kwargs=None save_freq=1",
        ReplayBuffer="obs_dim act_dim size",
    ),
    "spinup.algos.tf1.vpg.core": TF1_ON_POLICY_CORE,
    "spinup.algos.tf1.ppo.core": TF1_ON_POLICY_CORE,
    "spinup.algos.tf1.vpg.vpg": dict(
        vpg="env_fn actor_critic=mlp_actor_critic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=50 gamma=0.99 pi_lr=0.0003 vf_lr=0.001 train_v_iters=80 lam=0.97 "
        "max_ep_len=1000 logger_kwargs=None save_freq=10",
        VPGBuffer="obs_dim act_dim size gamma=0.99 lam=0.95",
    ),
    "spinup.algos.tf1.ppo.ppo": dict(
        ppo="env_fn actor_critic=mlp_actor_critic ac_kwargs=None seed=0 steps_per_epoch=4000 "
        "epochs=50 gamma=0.99 clip_ratio=0.2 pi_lr=0.0003 vf_lr=0.001 train_pi_iters=80 "
        "train_v_iters=80 lam=0.97 max_ep_len=1000 target_kl=0.01 logger_kwargs=None save_freq=10",
        PPOBuffer="obs_dim act_dim size gamma=0.99 lam=0.95",
    ),
    "spinup.utils.mpi_tf": dict(
        flat_concat="xs", assign_params_from_flat="x params", sync_params="params",
        sync_all_params="",
        **{
            "MpiAdamOptimizer.compute_gradients": "self loss var_list",
            "MpiAdamOptimizer.apply_gradients": "self grads_and_vars global_step=None name=None",
        },
    ),
    "spinup.utils.logx": dict(
        Logger="output_dir=None output_fname=progress.txt exp_name=None",
        colorize="string color bold=False highlight=False",
        restore_tf_graph="sess fpath",
        **{
            "Logger.log": "self msg color=green",
            "Logger.log_tabular": "self key val",
            "Logger.save_config": "self config",
            "Logger.save_state": "self state_dict itr=None",
            "Logger.setup_tf_saver": "self sess inputs outputs",
            "Logger.setup_pytorch_saver": "self what_to_save",
            "Logger.dump_tabular": "self",
            "EpochLogger.store": "self",
            "EpochLogger.log_tabular": "self key val=None with_min_and_max=False "
            "average_only=False",
            "EpochLogger.get_stats": "self key",
        },
    ),
    "spinup.utils.mpi_tools": dict(
        mpi_fork="n bind_to_core=False", msg="m string=", proc_id="", num_procs="", allreduce="",
        broadcast="x root=0", mpi_op="x op", mpi_sum="x", mpi_avg="x",
        mpi_statistics_scalar="x with_min_and_max=False",
    ),
    "spinup.utils.mpi_pytorch": dict(
        setup_pytorch_for_mpi="", mpi_avg_grads="module", sync_params="module"
    ),
    "spinup.utils.serialization_utils": dict(convert_json="obj"),
    "spinup.utils.run_utils": dict(
        setup_logger_kwargs="exp_name seed=None data_dir=None datestamp=False",
        call_experiment="exp_name thunk seed=0 num_cpu=1 data_dir=None datestamp=False",
        valid_str="v", all_bools="vals", test_eg="", convert_json="obj",
        ExperimentGrid="name=",
        **{
            "ExperimentGrid.name": "self _name",
            "ExperimentGrid.add": "self key vals shorthand=None in_name=False",
            "ExperimentGrid.variant_name": "self variant",
            "ExperimentGrid.variants": "self",
            "ExperimentGrid.print": "self",
            "ExperimentGrid.run": "self thunk num_cpu=1 data_dir=None datestamp=False",
        },
    ),
    "spinup.utils.test_policy": dict(
        load_policy_and_env="fpath itr=last deterministic=False",
        load_pytorch_policy="fpath itr deterministic=False",
        load_tf_policy="fpath itr deterministic=False",
        run_policy="env get_action max_ep_len=None num_episodes=100 render=True",
    ),
    "spinup.utils.plot": dict(
        plot_data="data xaxis=Epoch value=AverageEpRet condition=Condition1 smooth=1",
        get_datasets="logdir condition=None",
        get_all_datasets="all_logdirs legend=None select=None exclude=None",
        make_plots="all_logdirs legend=None xaxis=None values=None count=False font_scale=1.5 "
        "smooth=1 select=None exclude=None estimator=mean",
    ),
}  # fmt: skip
CASES = [(module, name) for module, names in SIGNATURES.items() for name in names]


@pytest.mark.parametrize(("module", "name"), CASES)
def test_signature(module, name):
    found = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    # The learners' buffers take the same arguments through *args; look at the class beneath.
    if name in ("VPGBuffer", "PPOBuffer", "GAEBuffer", "ReplayBuffer", "SegmentBuffer"):
        found = found.__mro__[1] if found.__mro__[1] is not object else found
    parameters = list(inspect.signature(found).parameters.values())
    wanted = SIGNATURES[module][name].split()
    for parameter, word in zip(parameters, wanted, strict=False):
        expected, has_default, default = word.partition("=")
        assert parameter.name == expected
        if has_default:
            value = getattr(parameter.default, "__name__", parameter.default)
            assert str(value).replace(" ", "") == default
    assert len(parameters) >= len(wanted)
    for new in parameters[len(wanted) :]:  # what is new must not be required
        assert new.default is not NO_DEFAULT or new.kind in (new.VAR_KEYWORD, new.VAR_POSITIONAL)


def test_names_from_the_top():
    import spinup
    from spinup import EpochLogger, Logger, __version__

    for name in spinup.ALGORITHMS["pytorch"]:
        assert getattr(spinup, f"{name}_pytorch").__name__ == name
    assert issubclass(EpochLogger, Logger)
    assert __version__ == spinup.__version__


def test_settings_of_the_user():
    from spinup import user_config

    for name in (
        "DEFAULT_BACKEND",
        "DEFAULT_DATA_DIR",
        "FORCE_DATESTAMP",
        "DEFAULT_SHORTHAND",
        "WAIT_BEFORE_LAUNCH",
    ):
        assert hasattr(user_config, name)


OBS = Box(-np.inf, np.inf, (5,), np.float32)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@pytest.mark.parametrize("actions", [Box(-1, 1, (2,), np.float32), Discrete(4)])
@pytest.mark.parametrize("algorithm", ["trpo", "ppo"])
def test_networks_of_on_policy_algorithms(algorithm, actions):
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    ac = core.MLPActorCritic(OBS, actions)
    obs = torch.zeros(3, 5)
    a, v, logp = ac.step(obs)
    assert all(isinstance(x, np.ndarray) and len(x) == 3 for x in (a, v, logp))
    assert ac.act(obs).shape == a.shape
    pi, none = ac.pi(obs)
    assert none is None
    act = torch.as_tensor(a)
    pi, logp_again = ac.pi(obs, act)
    assert torch.allclose(logp_again, torch.as_tensor(logp), atol=1e-6)
    assert torch.equal(ac.pi._log_prob_from_distribution(ac.pi._distribution(obs), act), logp_again)
    one = ac.step(torch.zeros(5))  # a single observation, as the original passed it
    assert one[1].shape == () and one[0].shape == actions.shape
    if isinstance(actions, Box):
        assert torch.equal(ac.pi.log_std.detach(), torch.full((2,), -0.5))
        normal = torch.distributions.Normal(pi.loc, pi.scale).log_prob(act).sum(-1)
        assert torch.allclose(normal, logp_again, atol=1e-5)


def test_networks_of_sac():
    from spinup.algos.pytorch.sac import core

    low, high = np.float32([-1, 0, 10]), np.float32([1, 4, 30])
    ac = core.MLPActorCritic(OBS, Box(low, high), hidden_sizes=(16, 16))
    obs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) * 50
    a, logp = ac.pi(obs)
    assert a.shape == (200, 3) and logp.shape == (200,)
    assert (a >= torch.as_tensor(low)).all() and (a <= torch.as_tensor(high)).all()
    assert (a.amin(0) < torch.as_tensor((low * 3 + high) / 4)).all()  # each dimension is used
    assert (a.amax(0) > torch.as_tensor((low + 3 * high) / 4)).all()
    assert ac.pi(obs, True, False)[1] is None
    assert np.array_equal(ac.act(obs, True), ac.act(obs, True))
    assert ac.act(obs[0]).shape == (3,)
    assert ac.q1(obs, a).shape == ac.q2(obs, a).shape == (200,)
    assert ac.q1(obs[0], a[0]).shape == ()
    assert (core.LOG_STD_MAX, core.LOG_STD_MIN) == (2, -20)
    actor = core.SquashedGaussianMLPActor(5, 2, (8,), nn.ReLU, 2.0)  # as the original made it
    assert actor(obs)[0].abs().max() <= 2


@pytest.mark.parametrize(("algorithm", "critics"), [("ddpg", ["q"]), ("td3", ["q1", "q2"])])
def test_networks_of_deterministic_policies(algorithm, critics):
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    low, high = np.float32([-1, 0, 10]), np.float32([1, 4, 30])
    ac = core.MLPActorCritic(OBS, Box(low, high), hidden_sizes=(16, 16))
    obs = torch.randn(200, 5, generator=torch.Generator().manual_seed(0)) * 50
    a = ac.pi(obs)
    assert a.shape == (200, 3)
    assert (a >= torch.as_tensor(low)).all() and (a <= torch.as_tensor(high)).all()
    assert (a.amin(0) < torch.as_tensor((low * 3 + high) / 4)).all()  # each dimension is used
    assert (a.amax(0) > torch.as_tensor((low + 3 * high) / 4)).all()
    assert isinstance(ac.act(obs), np.ndarray) and ac.act(obs).shape == (200, 3)
    assert ac.act(obs[0]).shape == (3,)  # a single observation, as the original passed it
    for name in critics:
        assert getattr(ac, name)(obs, a).shape == (200,)
        assert getattr(ac, name)(obs[0], a[0]).shape == ()
    actor = core.MLPActor(5, 2, (8,), nn.ReLU, 2.0)  # as the original made it
    assert actor(obs).abs().max() <= 2
    assert core.MLPQFunction(5, 2, (8,), nn.ReLU)(obs, actor(obs)).shape == (200,)


def test_weights_start_as_linear_layers_do():
    from spinup.algos.pytorch.sac import core

    torch.manual_seed(0)
    ac = core.MLPActorCritic(OBS, Box(-1, 1, (2,)), hidden_sizes=(64, 64))
    for critic in (ac.q1, ac.q2):
        for layer, inputs in zip(critic.q[0::2], (7, 64, 64)):
            bound = inputs**-0.5
            assert bound * 0.9 < layer.weight.abs().max() <= bound
            assert layer.bias.abs().max() <= bound
        assert core.count_vars(critic) == 7 * 64 + 64 + 64 * 64 + 64 + 64 + 1


LAYERS = ("0.weight", "0.bias", "2.weight", "2.bias")
PARAMETERS = {
    ("ppo", "Box"): {*(f"pi.mu_net.{x}" for x in LAYERS), "pi.log_std"}
    | {f"v.v_net.{x}" for x in LAYERS},
    ("vpg", "Discrete"): {f"{net}.{x}" for net in ("pi.logits_net", "v.v_net") for x in LAYERS},
    ("ddpg", "Box"): {f"{net}.{x}" for net in ("pi.pi", "q.q") for x in LAYERS},
    ("td3", "Box"): {f"{net}.{x}" for net in ("pi.pi", "q1.q", "q2.q") for x in LAYERS},
    ("sac", "Box"): {f"{net}.{x}" for net in ("q1.q", "q2.q") for x in LAYERS}
    | {
        f"pi.{net}.{x}"
        for net in ("net.0", "mu_layer", "log_std_layer")
        for x in ("weight", "bias")
    },
}


@pytest.mark.parametrize(("algorithm", "actions"), PARAMETERS)
def test_parameters_have_the_names_of_the_original(algorithm, actions):
    """People load each other's weights."""
    core = import_module(f"spinup.algos.pytorch.{algorithm}.core")
    space = Box(-1, 1, (2,)) if actions == "Box" else Discrete(3)
    ac = core.MLPActorCritic(OBS, space, hidden_sizes=(8,))
    assert set(ac.state_dict()) == PARAMETERS[algorithm, actions]


@pytest.mark.parametrize(
    ("algorithm", "columns"),
    [
        ("vpg", "Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV "
                "Entropy KL Time"),
        ("trpo", "Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV "
                 "KL BacktrackIters Time"),
        ("ppo", "Epoch EpRet* EpLen VVals* TotalEnvInteracts LossPi LossV DeltaLossPi DeltaLossV "
                "Entropy KL ClipFrac StopIter Time"),
        ("ddpg", "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossPi LossQ "
                 "Time"),
        ("td3", "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts Q1Vals* Q2Vals* LossPi "
                "LossQ Time"),
        ("sac", "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts Q1Vals* Q2Vals* LogPi* "
                "LossPi LossQ Time"),
        ("acer", "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossPi LossQ "
                 "Entropy KL TruncFrac TrustFrac Replays Time"),
        ("her", "Epoch EpRet* TestEpRet* EpLen TestEpLen TotalEnvInteracts QVals* LossPi LossQ "
                "Time SuccessRate TestSuccessRate"),
    ],
)  # fmt: skip
def test_columns_of_the_table(algorithm, columns, tmp_path):
    import spinup
    from spinup.parts.make_env import EnvMaker

    train = getattr(spinup, f"{algorithm}_pytorch")
    where = dict(output_dir=str(tmp_path))
    env_name = dict(acer="CartPole-v1", her="spinup/Reach-v0").get(algorithm, "Pendulum-v1")
    train(EnvMaker(env_name), steps_per_epoch=200, epochs=1, logger_kwargs=where)
    spread = "Average{0} Std{0} Max{0} Min{0}"
    wanted = [spread.format(c[:-1]) if c.endswith("*") else c for c in columns.split()]
    wanted = " ".join(wanted).split()
    header = (tmp_path / "progress.txt").read_text().splitlines()[0].split("\t")
    assert header[: len(wanted)] == wanted  # what is new stands behind
    assert (tmp_path / "pyt_save" / "model.pt").exists()


def test_folders(tmp_path):
    from spinup.parts.run_folder import setup_logger_kwargs

    assert setup_logger_kwargs("name", 3, tmp_path) == dict(
        output_dir=str(tmp_path / "name" / "name_s3"), exp_name="name"
    )
    import re

    dated = setup_logger_kwargs("name", 3, tmp_path, datestamp=True)["output_dir"]
    day, run = dated.split("/")[-2:]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_name", day)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d-name_s3", run)
