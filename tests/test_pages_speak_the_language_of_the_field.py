"""Package, pages and docs say what textbooks and papers say, so that a student can search for it.

Two lists: words of our own that must not come back, and standard terms that must stay where they
belong. Common words ("memory", "test", "share") are banned only in phrases that have no other
meaning here.
"""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest
from algorithm_kinds import OFF_POLICY, ON_POLICY

ROOT = Path(__file__).resolve().parents[1]
ALGORITHMS = ROOT / "spinup" / "algos" / "pytorch"
PAGES = sorted(
    [ROOT / "README.md", ROOT / "benchmarks" / "README.md"]
    + list((ROOT / "docs").glob("*.md"))
    + list(ALGORITHMS.glob("*/README.md"))
)
SOURCES = sorted(
    path for kind in ("*.py", "*.html", "*.js", "*.css") for path in (ROOT / "spinup").rglob(kind)
)
THIS_FILE = Path(__file__).resolve()  # it holds the lists
TESTS = [*(ROOT / "tests").glob("*.py"), *(ROOT / "tests" / "helpers").glob("*.py")]
TESTS = sorted(set(TESTS) - {THIS_FILE})

# What not to write (a pattern, in any case of letters): what the field calls it.
WORDS = {
    r"slow(er)? (average )?cop(y|ies)": "target network; in ACER: average policy network",
    r"step sizes?": "learning rate",
    r"(?<!discount factor, )what a reward one step later is worth": "discount factor, what …",
    r"trust in rewards seen": "GAE lambda: 1 is Monte Carlo, 0 is one-step TD",
    r"reward for staying random": "entropy coefficient",
    r"price of entropy|pays? for \W*entropy": "temperature",
    r"longer gradient|shortens? (no|more|none)|gradients? (is|are) shortened": "clipping the norm",
    r"greatest weight|who(ever)? played": "truncated importance weight",
    r"share of (wholly )?random actions": "exploration rate",
    r"(?<!\")blur(s|red)?": "target policy smoothing",
    r"bell curves?": "Gaussian",
    r"pictures?": "image; of a plot: figure",
    r"deems? best": "greedy, most probable",
    r"drawn (anew|at random|evenly|alike|twice|from memory|from within)|draw is uneven": "sampled",
    # Random numbers are sampled; a plot may be drawn.
    r"draw(s|n|ing)? (random|noise|((a|an|the) )?(batch|minibatch|action|sample|transition)s?\b)"
    r"|draw(s|n|ing)? (from|with) (an?|the|its|their|PyTorch's|NumPy's) (random|normal|uniform"
    r"|Gaussian|policy|buffer|replay|stream|generator|distribution)"
    r"|(batch|number|action|sample|transition)(es|s)?( of a block)? (is|are|was|were) drawn":
    "sampled",
    r"more doubtful": "the smaller of the two critics",
    r"(fuller|longer|from|play) memory|steps? in memory|remembered steps?": "replay buffer",
    r"(rarer|surer|every) tests?\b(?! (file|of the suite))|tests are (played|wholly)": "evaluation",
    r"diar(y|ies)": "tracker",
    r"film(s|ed|ing)?": "video, record",
    r"how (all |the |a )?runs? stands?": "status",
    r"(?<!and )(goes|go|going|went) on\b(?! (the|a)\b)": "resumes, continues",
    r"anew": "again; of a run: start over",
    r"wants": "must be, needs",
    r"whole numbers?": "integer",
    r"a text": "a string",
    r"blanks?(?! lines?)": "space",
    r"mend(s|ed|ing)?": "fix",
    r"has its moods": "varies",
}  # fmt: skip

# What not to call a part of the program: what it is called.
NAMES = {
    "shorten": "clip_grad_norm_", "BellCurves": "DiagonalGaussian",
    "_bell_curves": "_mu_and_log_std", "_curves": "_mu_and_log_std",
    "picture_layout": "image_layout", "tell": "log_row",
    "caught_up": "drop_stale", "randomness_kept": "preserve_rng", "Standing": "RunStatus",
    "standing": "run_status", "Pace": "Schedule", "stride": "total_envs", "claim": "lock",
    "is_claimed": "is_locked", "make_restartable": "enable_auto_resume",
    "random_streams": "rng_state", "_listen": "_install_handlers", "adopt": "standardize",
    "within_space": "clip_to_space", "_made": "_make_or_explain, _storages_of",
    "begun": "pending", "look_ahead": "n_step_returns", "LEAST_ERROR": "EPSILON",
    "greatest": "max_priority", "add_up": "refresh", "fitting": "check_ac_kwargs",
    "what_to_do": "resume_action", "chosen": "config", "_painted": "_colored",
    "guarded": "report_errors", "doubts": "warnings", "judged": "comparison",
    "add_judgement": "add_compare_flags", "Parcel": "FolderDelta", "Began": "Started",
    "Try": "Attempt", "Home": "DriverActor", "_knock": "_check_port", "_see_through": "_poll",
    "_take_in": "_handle", "PATIENCE": "TIMEOUT", "said_before": "output_offset",
    "talk": "output_thread", "_line": "_open_pty", "_show_and_keep": "_tee",
    "_look_before": "_check", "make_room": "prepare_folder", "_conclude": "_raise_failures",
    "few_rows": "numpy_forward",
    "array_of": "numpy_view", "learn_scales": "update_normalizers",
    "Normalizer": "RunningNormalizer",
    "through_layers": "mlp_forward", "second_derivatives": "double_backward",
    "_TWICE": "_DOUBLE_BACKWARD", "_WANTED": "_REQUESTED", "_SLOPES": "_ACTIVATION_BACKWARD",
    "Flat": "Flatten", "find_gradient": "compute_gradient", "_leave_gradient": "_backward",
    "descend": "minimize", "passes": "minibatches", "tensors_on": "as_tensors", "whole": "ensemble",
    "disturbed": "add_noise", "of_array": "numpy", "draw_actions": "sample_categorical",
    "_taken": "_gather_action", "_Watch": "_TraceMode", "_Exits": "_HostReadGuard",
    "EXITS": "HOST_READS", "FILLED": "CONSTANT_OPS", "ONLY_NOTED": "DEFERRED_OPS",
    "_place": "_storage", "_places": "_storages", "_placed": "_plan_memory",
    "is_ours": "is_traceable", "as_written": "eager", "side_by_side": "run_concurrently",
    "again": "replay_kernel", "_product": "_matmul", "_product_plus": "_addmm",
    "_of_tanh": "_tanh_backward", "_each_times": "_foreach_mul", "_each_moved": "_foreach_lerp",
    "_row_by_row": "_tiled", "_in_turn": "_sequence", "TINY": "MAX_NUMPY_NUMEL",
    "_ALWAYS": "_SIZE_AWARE", "TRIED": "PROBE_LENGTH", "WAKING": "PROBE_WARMUP",
    "CLEARLY": "SWITCH_RATIO", "ALARM": "SLOWDOWN", "Elsewhere": "OutsideCurrentFolder",
    "stays_here": "is_offline", "of_bytes": "is_uint8", "find_memory": "find_hidden_state",
    "draw": "sample", "drawn": "sampled",
}  # fmt: skip
ONLY_IN = {  # names that are wrong only in the modules that they came from
    "tell": "trackers|logger", "whole": "layers|networks|learning", "chosen": "train",
    "passes": "learning", "greatest": "prioritized", "again": "kernels", "_line": "processes",
    "claim": "run_folder|run_setup", "stride": "schedule|buffers|hindsight",
    "_made": "make_env|fast", "_curves": "pytorch", "_taken": "pytorch",
    "TINY": "fast/", "TRIED": "fast/", "disturbed": "networks|noise",
    "fitting": "backend|run_setup", "adopt": "standardize|envs", "_place": "fast",
    "_places": "fast", "descend": "learning", "talk": "job", "Home": "ray",
    "draw": "parts/", "drawn": "parts/",
}  # fmt: skip

# Standard terms, and the pages that must say them: the folder of an algorithm, or a file.
TERMS = {
    "target network": ["dqn", "ddpg", "td3", "sac", "her"],
    "average policy network": ["acer"],
    "learning rate": ON_POLICY + OFF_POLICY,
    "discount factor": ON_POLICY + OFF_POLICY,
    "reparameterization": ["sac"],
    "overestimat": ["dqn", "ddpg", "td3", "sac"],
    "bootstrap": ON_POLICY + OFF_POLICY,
    "target policy smoothing": ["td3"],
    "clipped double": ["td3", "sac"],
    "TD error": ["vpg", "ppo", "dqn"],
    "importance sampling": ["trpo", "ppo", "acer", "dqn"],
    "Monte Carlo": ON_POLICY,
    "replay buffer": OFF_POLICY,
    "Polyak averaging": OFF_POLICY,
    "exploration rate": ["dqn", "her"],
    "entropy coefficient": ["ppo", "acer"],
    "temperature": ["sac", "README.md"],
    "gradient-norm clipping": ["ppo", "acer", "dqn"],
    "GAE lambda": ["vpg", "trpo", "ppo"],
    "on-policy": [*ON_POLICY, "acer", "README.md"],
    "off-policy": [*OFF_POLICY, "README.md"],
    "score function": ["reinforce"],
    "return-to-go": ["reinforce"],
    "natural gradient": ["trpo"],
    "Fisher": ["trpo"],
    "conjugate gradient": ["trpo"],
    "line search": ["trpo"],
    "trust region": ["trpo", "acer"],
    "Kullback": ["trpo", "ppo", "acer"],
    "surrogate": ["trpo", "ppo"],
    "clipped surrogate": ["ppo"],
    "Retrace": ["acer"],
    "truncated importance": ["acer"],
    "behaviour policy": ["acer"],
    "policy gradient theorem": ["reinforce", "vpg"],
    "value function": ON_POLICY,
    "variance": ["reinforce", "vpg"],
    "epsilon-greedy": ["dqn"],
}  # fmt: skip


def relative(path):
    return str(path.relative_to(ROOT))


def page_of(name):
    return ROOT / name if name.endswith(".md") else ALGORITHMS / name / "README.md"


PLACES = [(term, page) for term, pages in TERMS.items() for page in pages]


def test_pages_are_found():
    assert len(PAGES) > 14 and len(SOURCES) > 80 and len(TESTS) > 50
    assert {page_of(page) for pages in TERMS.values() for page in pages} <= set(PAGES)


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_a_page_uses_no_words_of_our_own(path):
    assert private_words(path.read_text()) == []


@pytest.mark.parametrize(("term", "page"), PLACES)
def test_a_standard_term_stands_where_it_belongs(term, page):
    assert term.lower() in plain(page_of(page).read_text()).lower()


@pytest.mark.parametrize("path", SOURCES, ids=relative)
def test_the_package_uses_no_words_of_our_own(path):
    assert private_words(prose(path)) + private_names(path) == []


@pytest.mark.parametrize("path", TESTS, ids=relative)
def test_the_tests_use_no_words_of_our_own(path):
    assert private_words(prose(path)) + private_names(path) == []


PROGRAM = '''
def update(net):
    """Move the slow
    copy."""
    # Each error wants a
    # whole number, in
    net.wants = "a bell " "curve"  # pictures
    shorten(net)
'''


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("it draws random numbers from a stream", True), ("drawn from a random generator", True),
        ("drawing a batch", True), ("the numbers are drawn", True), ("draw from the policy", True),
        ("draws the mean of its runs", False), ("a table is drawn again", False),
        ("draw each run from its first row", False), ("figures are drawn", False),
    ],
)  # fmt: skip
def test_random_numbers_are_sampled_and_plots_drawn(text, found):
    assert bool(private_words(text)) == found


def test_old_words_and_names_are_found(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    found = [told.split(":")[0] for told in private_words(prose(file))]
    assert sorted(found) == [
        "'bell curve'",
        "'pictures'",
        "'slow copy'",
        "'wants'",
        "'whole number'",
    ]
    assert private_names(file) == ["shorten: say clip_grad_norm_"]


def prose(path):
    """What a file says to a reader: of a program, its comments and strings; else all of it."""
    if path.suffix != ".py":
        return path.read_text()
    found, kind = [], None
    for token in tokenize.generate_tokens(io.StringIO(path.read_text()).readline):
        name = tokenize.tok_name[token.type]
        if name in ("NL", "NEWLINE", "INDENT", "DEDENT"):
            continue
        if name == "COMMENT":
            found.append(("" if kind == name else "|") + token.string.lstrip("# "))
        elif name.startswith(("STRING", "FSTRING")):
            text = re.sub(r"^\w*(\"{3}|\'{3}|\"|\')|(\"{3}|\'{3}|\"|\')$", "", token.string)
            found.append(("" if kind == "STRING" else "|") + text)
            name = "STRING"
        kind = name
    return "\n".join(found)


def private_words(text):
    """What a text should say in the words of the field: what it says, and what it should say."""
    text = plain(text)
    return [
        f"{match[0]!r}: say {better}"
        for word, better in WORDS.items()
        for match in re.finditer(rf"\b({word})\b", text, re.IGNORECASE)
    ]


def private_names(path):
    """Names of our own among the identifiers of a program."""
    if path.suffix != ".py":
        return []
    found, place = set(), str(path).removeprefix(str(ROOT))
    for node in ast.walk(ast.parse(path.read_text())):
        for field in ("id", "attr", "name", "arg", "asname"):
            name = getattr(node, field, None)
            if name in NAMES and re.search(ONLY_IN.get(name, ""), place):
                found.add(f"{name}: say {NAMES[name]}")
    return sorted(found)


def plain(text):
    return re.sub(r"\s+", " ", text)
