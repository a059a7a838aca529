"""Watching agents: the original's name for `spinup.results.playback`, and a command."""

from spinup.cli.test_policy import main
from spinup.results.agents import load_pytorch_policy, load_tf_policy
from spinup.results.playback import load_policy_and_env, run_policy

__all__ = ["load_policy_and_env", "load_pytorch_policy", "load_tf_policy", "main", "run_policy"]


if __name__ == "__main__":
    from spinup.parts.report_errors import report_errors

    report_errors(main)
