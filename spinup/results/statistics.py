"""How good an experiment is, and how sure one can be of it, from the scores of its seeds.

What is meant by each number: Agarwal et al., "Deep Reinforcement Learning at the Edge of the
Statistical Precipice" (2021). The computing is SciPy's.

Scores come as a list with an array for each task, of one number per seed. Resampling is stratified:
seeds are sampled with replacement within each task, and all tasks stay.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

RESAMPLES, SEED, CONFIDENCE = 9999, 0, 0.95
BAND_RESAMPLES = 1000  # for each point of a curve, where less precision is enough

# How many of n runs, in order, each of these leaves out at either end before it takes the mean.
CUT_OFF: dict[str, Callable[[int], int]] = dict(
    mean=lambda n: 0, median=lambda n: (n - 1) // 2, iqm=lambda n: n // 4
)


def iqm(values: ArrayLike, axis: int = 0) -> Any:
    """The mean of the middle half of `values`: neither one lucky seed nor one lost one decides."""
    from scipy.stats import trim_mean

    return trim_mean(values, 0.25, axis=axis)


def mean_over_tasks(*tasks: np.ndarray, axis: int = -1) -> Any:
    """The mean of the tasks' means, so that no task counts more for having more seeds."""
    return np.mean([task.mean(axis=axis) for task in tasks], axis=0)


def iqm_over_tasks(*tasks: np.ndarray, axis: int = -1) -> Any:
    """The interquartile mean of the scores of all tasks together."""
    return iqm(np.concatenate(tasks, axis=axis), axis=axis)


def improvement_over_tasks(*tasks: np.ndarray, axis: int = -1) -> Any:
    """How probable it is that a seed of the first experiment beats one of the second.

    tasks: the scores of the first experiment on each task, then those of the second; a tie
        counts as half
    """
    from scipy.stats import mannwhitneyu

    half = len(tasks) // 2
    pairs = [(x, y, x.shape[axis] * y.shape[axis]) for x, y in zip(tasks[:half], tasks[half:])]
    u = [mannwhitneyu(x, y, axis=axis, method="asymptotic")[0] / many for x, y, many in pairs]
    return np.mean(u, axis=0)


def interval(tasks: list[np.ndarray], statistic: Callable) -> tuple[float, float] | None:
    """The 95 % percentile bootstrap interval of `statistic`; None where a task has but one seed."""
    from scipy.stats import bootstrap

    if min(map(len, tasks)) < 2:
        return None
    found = bootstrap(
        tasks,
        statistic,
        n_resamples=RESAMPLES,
        confidence_level=CONFIDENCE,
        method="percentile",
        vectorized=True,
        random_state=np.random.default_rng(SEED),
    )
    low, high = found.confidence_interval
    return float(low), float(high)


def interval_at_each_point(values: np.ndarray, estimator: str) -> np.ndarray:
    """Both ends of the 95 % percentile bootstrap interval of a curve, at each of its points.

    All points are estimated on the same resamples of the runs, so the band is smooth.

    values: a row for each run and a column for each point
    estimator: one of `CUT_OFF`
    """
    tail = 50 * (1 - CONFIDENCE)
    return np.percentile(_resampled(values, estimator), [tail, 100 - tail], axis=0)


def random_numbers(n: int) -> np.ndarray:
    """The numbers from 0 to 2**32 - 1 that sample `BAND_RESAMPLES` times n of n runs.

    For fewer runs they are the first of these. The report page holds them and samples with them
    as `_resampled` does, so that its bands are those of `spinup plot`.
    """
    generator = np.random.default_rng(SEED)
    return generator.integers(2**32, size=BAND_RESAMPLES * n, dtype=np.uint32)


def _resampled(values, estimator):
    """The estimate of each resample of the runs: a row for each, a column for each point.

    All estimators here are means of what is left when some runs are cut off at both ends, so how
    often each run is sampled gives its weight, and one product does all points at once.
    """
    n = len(values)
    cut = CUT_OFF[estimator](n)
    numbers = random_numbers(n).reshape(BAND_RESAMPLES, n).astype(np.uint64)
    samples = (numbers * n // 2**32).astype(np.int64)  # from 0 to n - 1, all as probable
    times = np.stack([np.bincount(row, minlength=n) for row in samples])
    ranks = times.cumsum(axis=1)
    kept = np.minimum(ranks, n - cut) - np.maximum(ranks - times, cut)
    return kept.clip(0) / (n - 2 * cut) @ (np.sort(values, axis=0) if cut else values)
