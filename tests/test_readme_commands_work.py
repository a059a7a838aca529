"""What README.md tells a newcomer to type works as printed, only on a smaller scale."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
README = (REPOSITORY / "README.md").read_text()


def blocks(language=""):
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def test_the_two_commands_are_targets_of_the_makefile():
    top = blocks()[0].splitlines()
    assert [line.split("#")[0].strip() for line in top] == ["make demo", "make test"]
    for target in ("setup", "demo", "test"):
        listed = subprocess.run(
            ["make", "--dry-run", "--always-make", target],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
        )
        assert listed.returncode == 0
        assert "--constraint constraints.txt" in listed.stdout


def type_in(block, count, folder, *more):
    """Type the lines of a block; `more` makes a training short."""
    lines = block.splitlines()
    assert len(lines) == count
    for line in lines:
        command, *words = shlex.split(line)
        assert command == "spinup"
        if words[0] == "ppo" and "--help" not in words:
            words += ["--steps_per_epoch", "100", "--train_pi_iters", "1", "--train_v_iters", "1"]
            words += more
        ended = subprocess.run(
            [sys.executable, "-m", "spinup.run", *words],
            cwd=folder,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        )
        assert ended.returncode == 0, ended.stderr


def test_the_command_lines(tmp_path):
    (block,) = [b for b in blocks() if "spinup resume" in b]
    type_in(block, 6, tmp_path)
    rows = (tmp_path / "data/try/try_s3/progress.txt").read_text().splitlines()
    assert len(rows) == 21  # ten epochs, then ten more, and the header
    assert (tmp_path / "try.png").stat().st_size > 5000
    assert (tmp_path / "try.mp4").stat().st_size > 1000
    assert (tmp_path / "policy.onnx").stat().st_size > 1000


def test_the_experiments(tmp_path):
    (block,) = [b for b in blocks() if "spinup compare" in b]
    type_in(block, 5, tmp_path, "--epochs", "2")
    tables = list(tmp_path.glob("data/grid_gam0-9*/*/progress.txt"))
    assert len(tables) == 6
    assert all(len(table.read_text().splitlines()) == 3 for table in tables)
    assert (tmp_path / "curves.png").stat().st_size > 5000
    assert (tmp_path / "report.html").stat().st_size > 5000


def test_the_python_examples(tmp_path):
    program = "\n".join(blocks("python"))
    program = program.replace("epochs=10", "epochs=1, steps_per_epoch=100")
    ended = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert ended.returncode == 0, ended.stderr
    assert "5 episodes: return" in ended.stdout


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)\)", README)
    for readme in REPOSITORY.glob("spinup/algos/*/*/README.md"):
        text = readme.read_text()
        links += [readme.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    assert links
    assert [str(link) for link in links if not (REPOSITORY / link).exists()] == []


def printed_commands():
    """The lines of all pages that a reader types into a shell, with the pages."""
    pages = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/*.md")]
    for page in [*pages, *REPOSITORY.glob("spinup/algos/*/*/README.md")]:
        for line in page.read_text().splitlines():
            if re.match(
                r"( {4})?(make|pip|python|py-spy record|ray|spinup|tensorboard) [^ `]", line
            ):
                yield page, line


def test_zsh_takes_commands_as_they_are_printed():
    """An interactive zsh takes # for a word, and brackets without quotes for a pattern of files."""
    lines = list(printed_commands())
    assert len(lines) > 40
    bare = [(page.name, re.sub(r"'[^']*'|\"[^\"]*\"", "", line)) for page, line in lines]
    assert [(page, line) for page, line in bare if set(line) & set("#[]?*(){}~")] == []
