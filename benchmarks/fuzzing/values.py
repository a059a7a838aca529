"""The values that random command lines and damaged files are made of."""

# The runs whose folders are damaged, each with what makes it keep other kinds of state.
RUNS = {
    "ppo": "ppo --env CartPole-v1 --ac_kwargs:normalize True --num_envs 2",
    "dqn": "dqn --env CartPole-v1 --prioritized --n_step 2",
    "sac": "sac --env Pendulum-v1 --alpha auto --keep_models --save_freq 1",
    "acer": "acer --env CartPole-v1 --env_kwargs:sutton_barto_reward True",
    "her": "her --env spinup/BitFlip-v0 --seed 1",
}
RUN_FOLDERS = {name: [f"{name}_s{int(name == 'her')}"] for name in RUNS}

NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "1000",
    "-1",
    "-7",
    "1000000",
    "1000000000",
    "1000000000000",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551616",
    "-9223372036854775809",
    "1e30",
    "1e300",
    "0.0",
    "0.5",
    "1.0",
    "0.99",
    "2.5",
    "-0.5",
    "1e-3",
    "1e-30",
    "1e-400",
    "1e5",
    "1e12",
    "1e308",
    "1e400",
    "-1e400",
    "nan",
    "inf",
    "-inf",
    "NaN",
    "1_000",
    "0x10",
    "0b1",
    "1e",
    "1/2",
    "1+1",
    "1j",
    "-0",
    "-0.0",
    "+1",
    "٣",
    "½",
]
WORDS = (
    "True", "False", "None", "true", "none", "auto", "value", "npg", "dqn", "td3", "final", "",
    " ", "abc", "é", "日本語", "💥", "\udcff", "a b", "../x", ".", "..", "-", "'", '"', "\x1b[31m",
    "%s", "{}", "{0}", "[", "]", "(", ")", "[[", "[1", "[]", "[[]]", "[1,[2]]", "()", "(1,)", "1,2",
    "{1:2}", "{'a':1}", "{'a':{'b':[]}}", "dict(a=1)", "dict(**{})", "dict(1)", "b'x'", "r'x'",
    "f'{1}'", "lambda: 0", "__import__('os').getcwd()", "...", "{1,2}", "set()", "x" * 300,
    "[" * 400, "9" * 400, "9" * 5000, "-" + "9" * 400, "\t", "\n", "a\nb", "\r", "#", "a#b", "\\",
    "torch.nn.Tanh", "Tanh", "torch.nn.Linear", "torch.nn", "nn.ReLU", "tf.nn.relu", "cpu", "cuda",
    "meta", "cuda:99", "mps", "xla", "cpu:3", "rgb_array", "human", "\u202e", "\u2028", "\ufeff",
)  # fmt: skip
LISTS = (
    "[4]", "[4,4]", "[0]", "[-1]", "[1.5]", "['a']", "[True]", "[None]", "[nan]", "[1000000000]",
    "[100000,100000]", "[30000,30000]", "[1]*9", "[1,]", "(4,4)", f"[{'9' * 400}]", "[[4],[4]]",
    "4", "[4", "{4}", "[" + ",".join(["2"] * 60) + "]", "[1e30]",
)  # fmt: skip
ENVS = (
    "CartPole-v1", "CartPole-v1", "CartPole-v1", "Pendulum-v1", "Pendulum-v1", "spinup/BitFlip-v0",
    "spinup/Reach-v0", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "CartPole-v0",
    "CartPole", "cartpole-v1", "CartPole-v99", "Blackjack-v1", "Taxi-v3", "FrozenLake-v1", ":",
    "os:CartPole-v1", "CartPole-v1:", "a:b:c", "gymnasium:CartPole-v1", "nothing:X-v0", "./x:Y-v0",
    "spinup/", "/", "ALE/", "ALE/Nothing-v5", "phys2d/CartPole-v1", "GymV26Environment-v0",
    "GymV21Environment-v0", "tabular/CliffWalking-v0", "Humanoid-v2", "CliffWalking-v1",
)  # fmt: skip
NAMES = (
    "train", "run", "test", "eval", "play", "list", "show", "info", "continue", "stop", "rm", "pop",
    "sca", "ppo_tf1", "ppo_jax", "PPO", "pp0", "--ppo", "-", "--", "", "é", "\udcff", "x" * 300,
    "help", "--help", "-h", "version", "--version", "-v", "resum", "exports", "wacth", "plt", "\n",
)  # fmt: skip
PATHS = (
    "data", "data/run", *[f"data/{name}" for name in RUNS],
    *[f"data/{name}/run_s0" for name in RUNS],
    *[f"data/{name}/run_s0" for name in RUNS], "data/her/run_s1", "nowhere", "", ".", "/dev",
    "/dev/null", "file", "loop", "data/ppo/run_s0/config.json", "data/ppo/run_s0/pyt_save",
    "data/ppo/run_s0/checkpoint", "data/p", "~", "*", "\udcff", "é", "x" * 300, "a\nb", "-", "--",
    "data/ppo/", "./data//ppo/run_s0/", "empty", "file/x", "/proc/self/fd", "/proc/1/root",
)  # fmt: skip
FILES = (
    "out.png", "out.svg", "out.pdf", "out.html", "out.htm", "out.onnx", "out.gif", "out.mp4", "out",
    "", ".", "/", "/dev/full", "/dev/null", "nowhere/out.png", "nowhere/out.mp4",
    "nowhere/out.onnx",
    "nowhere/out.html", "file/out.png", "loop/out.html", "dir.png", "dir.html", "dir.onnx",
    "dir.mp4", "é.png", "\udcff.png", "\udcff.html", "\udcff.mp4", "x" * 300 + ".png",
    "x" * 300 + ".html", "x" * 300 + ".onnx", "-o", "/proc/out.png", "/proc/out.html",
)  # fmt: skip
COLUMNS = ("Performance", "AverageEpRet", "Epoch", "Time", "LossPi", "Nothing", "", "Unit",
           "Condition1", "Condition2", "EpLen", "é", "\udcff")  # fmt: skip

# For damaged files.
JSON_VALUES = (
    None, True, False, 0, 1, -1, 3, 10**9, 10**30, 10**400, 2.5, 1e300, float("nan"), float("inf"),
    "", "text", "\ud800", "\x00", "../../x", "x" * 5000, "CartPole-v1", "é", "0", [], [1], [None],
    [[]], {}, {"a": 1}, {"": None}, [{}], {"id": "CartPole-v1"}, "None", [0] * 50, "a\tb\nc",
)  # fmt: skip
CELLS = (
    "", "nan", "inf", "-inf", "1e400", "1e308", "-1e308", "abc", "True", "0", "-1", "9" * 400, '"',
    "'", "é", "\x00", "1,5", "0x1", " ", "None", "\ud7ff", "1e", "\x1b[31m", "10000000000000000000",
)  # fmt: skip
FRAMES = ("Epoch", "TotalEnvInteracts", "AverageEpRet", "AverageTestEpRet", "Time", "Performance",
          "Unit", "Condition1", "Condition2", "", "é", "a" * 500)  # fmt: skip
STRAY = (
    "checkpoint/x.rows", "checkpoint/buffer.rank0/x.rows", "checkpoint/epochx.rank0.npz", "x.mp4",
    "pyt_save/model" + "9" * 30 + ".pt", "pyt_save/modelx.pt", "tf1_save/x", "output.txt", "x.gif",
    "job.json", "vars.pt", "checkpoint/buffer.rank0/-1.rows", "older_runs/1/progress.txt",
    "plot.png/x", "report.html/x", "policy.onnx/x", "pyt_save/model.pt.new/x", "config.json.new/x",
    "checkpoint/latest.new/x", "checkpoint/epoch3.rank0.npz/x", "checkpoint/epoch3.rank0.npz.new/x",
)  # fmt: skip
