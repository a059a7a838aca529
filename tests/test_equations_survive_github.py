"""Equations in our Markdown are shown as equations by GitHub.

GitHub gives a page to Markdown first and to MathJax after that. Markdown takes away backslashes
before punctuation, reads some underscores as emphasis and `<x` as a tag, and does not see
mathematics across a line break or with a letter right beside the dollar sign. It passes a ```math
fence on untouched, so displays stand in fences, and inline formulas keep to forms that survive.
In both, commands must be ones that MathJax knows and that GitHub allows.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("*.md", "docs/**/*.md", "benchmarks/**/*.md", "spinup/**/*.md", ".github/**/*.md")
PAGES = sorted(path for folder in FOLDERS for path in ROOT.glob(folder))

INLINE = re.compile(r"(?<![\\$])\$(?!\$)([^$]*?)(?<!\\)\$(?!\$)", re.S)
FORMS = {  # what breaks an inline formula: what happens, and what to write instead
    r"\\[!-/:-@[-`{-~]": "Markdown drops a backslash before punctuation; use \\lVert, \\lbrace …",
    r"(?<=[^\w\s])_": "an underscore after punctuation may start emphasis; use a letter before it",
    r"\*": "an asterisk may start emphasis; use \\ast or \\cdot",
    r"<[A-Za-z/!?]": "< before a letter looks like a tag; use \\lt",
    r"\n": "inline mathematics does not cross a line break",
    r"^\s|\s$|^$": "a formula begins and ends right beside its dollar signs",
}
KNOWN = """
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi pi
    rho varrho sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma
    Upsilon Phi Psi Omega ell infty partial nabla emptyset forall exists top bot prime
    sum prod int lim max min sup inf arg log ln exp tanh sin cos Pr det dim
    frac tfrac dfrac sqrt binom hat bar tilde vec dot overline underline widehat widetilde
    underbrace overbrace underset overset stackrel
    left right big Big bigl bigr Bigl Bigr bigg Bigg mid middle Vert vert lVert rVert lvert rvert
    lbrace rbrace langle rangle lfloor rfloor lceil rceil
    le leq ge geq lt gt ne neq ll gg equiv approx sim simeq propto in notin subset subseteq cup cap
    to gets leftarrow rightarrow Leftarrow Rightarrow mapsto iff implies
    cdot times ast pm mp circ oplus otimes odot dots ldots cdots vdots ddots
    quad qquad text mathrm mathbb mathcal mathbf mathit boldsymbol begin end
    displaystyle textstyle limits nolimits
"""


def problems(text):
    """What GitHub would break in a page, a line each."""
    found = list(unknown_commands(text))
    text = without_code(text)
    found += [(m.start(), "$$", "use a ```math fence for a display") for m in displays(text)]
    text = re.sub(r"\$\$.*?\$\$", _blank, text, flags=re.S)
    for match in INLINE.finditer(text):
        found += [(match.start(), match[0], why) for why in broken(match)]
    left = INLINE.sub(_blank, text)
    found += [(m.start(), "$", "without a partner") for m in re.finditer(r"(?<!\\)\$", left)]
    return [f"line {text.count(chr(10), 0, at) + 1}: {it}: {why}" for at, it, why in sorted(found)]


def without_code(text):
    """The text with its fenced blocks and code spans blanked: there, a dollar is a dollar."""
    text = re.sub(r"^(```+|~~~+).*?^\1", _blank, text, flags=re.M | re.S)
    text = re.sub(r"^(?: {4}|\t).*$", _blank, text, flags=re.M)
    return re.sub(r"(`+)(?!`).*?(?<!`)\1(?!`)", _blank, text, flags=re.S)


def _blank(match):
    return re.sub(r"[^\n]", " ", match[0])


def unknown_commands(text):
    """Commands in the formulas of a page that MathJax does not know, or GitHub refuses."""
    fences = re.finditer(r"^```math\n(.*?)^```", text, re.M | re.S)
    for formula in (*fences, *INLINE.finditer(without_code(text))):
        for command in re.finditer(r"\\([A-Za-z]+)", formula[1]):
            if command[1] not in KNOWN.split():
                at = formula.start(1) + command.start()
                yield at, command[0], "no command of KNOWN: misspelt, or new to our pages"


def displays(text):
    return re.finditer(r"\$\$.*?\$\$", text, re.S)


def broken(match):
    """Why GitHub would not show an inline formula; nothing if it would."""
    formula, text = match[1], match.string
    yield from (why for form, why in FORMS.items() if re.search(form, formula))
    beside = text[: match.start()][-1:] + text[match.end() :][:1]
    if re.search(r"\w", beside):
        yield "a letter or a digit right beside the dollar sign"
    line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
    if line.startswith("|") and "|" in formula:
        yield "| ends the cell of the table; use \\lvert or \\mid"


@pytest.mark.parametrize("path", PAGES, ids=[str(path.relative_to(ROOT)) for path in PAGES])
def test_equations_survive(path):
    assert problems(path.read_text()) == []


BROKEN = {
    r"a thin space, $a \, b$": "punctuation",
    r"a norm, $\| k \|^2$": "punctuation",
    r"a set, $\{ a \}$": "punctuation",
    r"a name, $x\_y$": "punctuation",
    "the positive part, $[x]_+$": "underscore",
    "the optimal $Q^*$": "asterisk",
    "the value $Q(s,\na)$ is": "line break",
    "the $n$th step": "letter or a digit",
    "of2$n$ bits": "letter or a digit",
    "of $ n $ bits": "right beside its dollar signs",
    "where $a<b$": "tag",
    "it costs 5$ or": "partner",
    "$$ a + b $$": "fence",
    "```math\n\\Vertk\\Vert^2\n```": "KNOWN",
    r"a name, $\operatorname{clip}(x)$": "KNOWN",
    "| $|x|$ | size |": "cell",
}


@pytest.mark.parametrize("text", BROKEN)
def test_what_github_breaks_is_found(text):
    assert BROKEN[text] in "".join(problems(text))


FINE = [
    r"the value $Q(s, a)$, of $\pi_\theta(a \mid s)$, and $x_1^2$.",
    "```math\nk = \\lVert a \\rVert \\, b\n\\\\ [x]_+^*\n```",
    "`$HOME` and ``$x \\, y`` and\n\n    export A=$B\n",
    r"$a \lt b$ (or $c$)",
    r"| $\lvert x \rvert$ | size |",
]


@pytest.mark.parametrize("text", FINE)
def test_what_github_shows_is_left_alone(text):
    assert problems(text) == []
