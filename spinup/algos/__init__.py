"""The one table of algorithms: each backend, and the folders of its algorithms.

To add an algorithm, add its folder under algos/<backend>/ and its name here.
"""

ALGORITHMS = {
    "pytorch": ("reinforce", "vpg", "trpo", "ppo", "acer", "dqn", "ddpg", "td3", "sac", "her"),
    "tf1": ("vpg", "ppo"),
}
