"""`spinup test_policy RUN`: `spinup watch` with the defaults of the original, 100 episodes."""

from spinup.cli import watch


def main(argv=None):
    watch.main(argv, "spinup test_policy", episodes=100)
