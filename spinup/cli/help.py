"""`spinup help`, and what to say to those who type a word that is no command."""

import spinup

HELP = """spinup: deep reinforcement learning to learn from

  spinup ALGO --env ID …       train; every setting is a flag
  spinup ALGO --help           its settings, with defaults and meanings
  spinup ALGO --seed 0 1 2 …   a grid: several values of a flag make a run of each combination
  spinup resume RUN            continue a run that was stopped; --epochs N extends it
  spinup watch RUN             see a trained agent play; --video FILE.mp4 records it
  spinup ls FOLDER             the runs in a folder: how far each is, and how well it does
  spinup plot RUN…             draw learning curves
  spinup compare FOLDER…       a table of results, with confidence intervals
  spinup report FOLDER         one page of curves, results, settings and videos
  spinup export RUN            the trained policy as an ONNX file
  spinup help                  this text

Algorithms: {algorithms}
(each also as ALGO_pytorch{tf1})

Begin with:  spinup ppo --env CartPole-v1 --epochs 10
Put lists in quotes:  spinup ppo --env CartPole-v1 --hid '[64,64]'
A run is kept in data/NAME/NAME_s<SEED>; the same command again resumes or leaves it alone.
Of a grid, --jobs N trains N runs at once; --ray and --ray-address HOST:PORT train with Ray."""

TO_TRAIN = "To train, name an algorithm: spinup ppo --env CartPole-v1."
TO_WATCH = "To see a trained agent play: spinup watch RUN."
TO_LIST = "To see the runs in a folder: spinup ls."
TO_RESUME = "To continue a run that was stopped: spinup resume RUN."
TO_PLOT = "To draw learning curves: spinup plot RUN."
TO_EXPORT = "To write a policy as an ONNX file: spinup export RUN."
# Words that are no command, and what to say to those who type them.
INSTEAD = {
    **dict.fromkeys(["train", "run", "learn", "fit", "start", "new"], TO_TRAIN),
    **dict.fromkeys(
        ["test", "eval", "evaluate", "play", "enjoy", "render", "record", "video", "demo"], TO_WATCH
    ),
    **dict.fromkeys(["list", "show", "status", "info", "runs", "ps", "dir"], TO_LIST),
    **dict.fromkeys(["continue", "restart", "extend"], TO_RESUME),
    **dict.fromkeys(["draw", "curves", "graph"], TO_PLOT),
    **dict.fromkeys(["onnx", "save"], TO_EXPORT),
}


def main(argv=None):
    algorithms = list(dict.fromkeys(a for names in spinup.ALGORITHMS.values() for a in names))
    with_tf1 = ", ".join(spinup.ALGORITHMS["tf1"])
    tf1 = f"; {with_tf1} also as ALGO_tf1, or with --backend tf1" if with_tf1 else ""
    print(HELP.format(algorithms=", ".join(algorithms), tf1=tf1))
