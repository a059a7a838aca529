"""What a run folder calls itself, its columns and its settings is shown, and never obeyed."""

import csv
import io
import json
import os
import re
import unicodedata
from pathlib import Path

import pytest
from rich.console import Console

from spinup.experiments.board import Board, report_state, table
from spinup.experiments.job import Job, Run
from spinup.parts.errors import UserError
from spinup.parts.plain_text import csv_cell, markdown_cell, plot_label, printable
from spinup.parts.terminal import format_table
from spinup.run import main

ESCAPES = {
    "colour": "\x1b[31m", "title": "\x1b]0;owned\x07", "link": "\x1b]8;;http://x\x1b\\here",
    "clipboard": "\x1b]52;c;eA==\x07", "bell": "\x07", "return": "x\rspinup: fine",
    "backspace": "x\b\b\b", "C1": "\x9b31m\x9d0;x\x9c", "bidi": "\u202egnp.exe\u2066",
    "null": "x\x7f\x00", "lines": "a\nb\x0b\x0c\x85\u2028c", "invisible": "\u200b\ufeff\u00ad",
    "tags": "\U000e0041", "not text": "\udc9b31m",
}  # fmt: skip
EVIL = "".join(ESCAPES.values()).replace("\x00", "")
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", " =1", "=cmd|'/c calc'!A0", "\uff1d1"]
MATH = [r"$\frac{", r"$\alpha$", "$", "a$b$c", r"\$x$", "_hidden", r"$\undefined{x}$"]


def shown_only(text, keep="\n"):
    """Whether a string has nothing that a terminal would obey."""
    wrong = {c for c in text if unicodedata.category(c)[0] == "C" or c in "\u2028\u2029"}
    return wrong <= set(keep)


def write(path, text):
    path.write_bytes(text.encode(errors="surrogateescape"))


def write_run(folder, name, env_id="CartPole-v1", column="Extra", rows=3, **settings):
    folder.mkdir(parents=True)
    config = dict(exp_name=name, algorithm="ppo_pytorch", seed=0, epochs=3, **settings)
    config["environment"] = dict(id=env_id)
    (folder / "config.json").write_text(json.dumps(config))
    column = column.replace("\t", " ").replace("\n", " ")
    lines = [f"Epoch\tTotalEnvInteracts\tAverageEpRet\tTime\t{column}"]
    lines += [f"{i}\t{100 * (i + 1)}\t{i}.5\t1.0\t2" for i in range(rows)]
    write(folder / "progress.txt", "".join(f"{line}\n" for line in lines))


@pytest.fixture
def evil(tmp_path, monkeypatch):
    """A folder in which every text is hostile."""
    monkeypatch.chdir(tmp_path)
    name = os.fsdecode(os.fsencode(EVIL.replace("/", "")[:60]))
    (Path("evil") / name).mkdir(parents=True)
    write_run(Path("evil") / name / "a", EVIL, EVIL, EVIL, gamma=EVIL, versions={EVIL: EVIL})
    write_run(Path("evil") / name / "b", ["\x1b[31m"], "\x1b", "\x1bx", algorithm_=EVIL)
    write(Path("evil") / name / "b" / "output.txt", f"Traceback\n{EVIL}\nValueError: {EVIL}")
    (Path("evil") / name / "b" / "job.json").write_text(
        json.dumps(dict(job=dict(state="failed", function=EVIL)))
    )
    broken = Path("evil") / name / "c"
    broken.mkdir()
    write(broken / "progress.txt", f"Epoch\t{EVIL}")
    write(broken / "config.json", "{" + EVIL)
    return Path("evil") / name


COMMANDS = {
    "ls": "ls {}", "ls --json": "ls {} --json", "compare": "compare {}",
    "compare --csv": "compare {} --csv", "compare --json": "compare {} --json",
    "compare --markdown": "compare {} --markdown", "plot": "plot {}",
    "plot a column": "plot {} -y x", "report": "report {}", "watch": "watch {}/a",
    "test_policy": "test_policy {}/b",
    "resume": "resume {}/a", "resume a broken one": "resume {}/c", "export": "export {}/a",
    "no such folder": "resume {}/nothing", "compare a column": "compare {} -y x",
}  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_prints_what_a_terminal_would_obey(command, evil, capsys):
    words = [word.format(evil) for word in COMMANDS[command].split()]
    try:
        main(words)
    except SystemExit as ended:
        assert ended.code == 2
    told = capsys.readouterr()
    assert told.out + told.err
    assert shown_only(told.out, "\r\n" if "csv" in command else "\n"), ascii(told.out)
    assert shown_only(told.err), ascii(told.err)


@pytest.mark.parametrize("kind", ESCAPES)
def test_every_kind_of_escape(kind):
    text = ESCAPES[kind]
    assert shown_only(printable(text), "") and printable(text) != text
    assert shown_only(str(UserError(f"In {text!s}.")))
    assert shown_only(format_table([text], [text]))
    assert shown_only(csv_cell(text), "") and shown_only(markdown_cell(text), "")


def test_letters_of_the_world_stay():
    text = "Läufer_1 αβγ 強化学習 ± 95 % – 🙂"
    assert printable(text) == text == csv_cell(text) == plot_label(text)


def test_formulas_are_texts_in_a_spreadsheet(tmp_path, capsys):
    for i, name in enumerate(FORMULAS):
        write_run(tmp_path / f"r{i}", name, env_id=name)
    main(["compare", str(tmp_path), "--csv"])
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out, newline="")))
    cells = [cell for row in rows for cell in row]
    assert len(rows) >= len(FORMULAS)  # two names are the same once they are printable
    for cell in cells:
        number = re.fullmatch(r"-?[\d.]+(e-?\d+)?", cell)
        assert number or not cell.lstrip().startswith(("=", "+", "-", "@", "\uff1d")), cell
    assert "'=1+1" in cells and csv_cell(-1.5) == -1.5


def test_dollars_are_drawn_and_not_typeset(tmp_path, capsys):
    for i, name in enumerate(MATH):
        write_run(tmp_path / f"r{i}", name, env_id=MATH[0], column=MATH[0])
    output = tmp_path / "plot.svg"
    main(["plot", str(tmp_path), "-y", "Performance", MATH[0], "-x", MATH[0], "-o", str(output)])
    svg = output.read_text()
    comments = [comment.strip() for comment in re.findall("<!-- (.*?) -->", svg, re.DOTALL)]
    for name in MATH:
        assert any(name in comment for comment in comments), name


def test_a_page_has_no_tag_of_a_run(tmp_path):
    """Texts of runs are data for the page's script, which puts them into text nodes alone."""
    tag = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    folder = tmp_path / "<img src=x onerror=alert(3)>"
    write_run(folder / "a", tag, tag, tag, gamma=tag, versions={tag: tag})
    (folder / "a" / "output.txt").write_text(f"Traceback\nValueError: {tag}\n")
    (folder / "a" / "job.json").write_text(json.dumps(dict(job=dict(state="failed"))))
    main(["report", str(folder)])
    page = (folder / "report.html").read_text()
    assert page.count("<script") == 2 and page.count("</script>") == 2 and "<img" not in page


def test_markdown_has_no_tag_and_no_link():
    assert markdown_cell("<b>![x](http://y)|`") == "&lt;b&gt;!\\[x\\](http://y)\\|\\`"


def test_the_board_of_a_grid(tmp_path, capsys, monkeypatch):
    folder = tmp_path / EVIL.replace("/", "")[:60]
    folder.mkdir()
    write(folder / "progress.txt", f"Epoch\t{EVIL}\n")
    job = Job("try", print, dict(logger_kwargs=dict(output_dir=str(folder))))
    runs = [Run(job, state, error=EVIL) for state in ("failed", "running", "finished", "queued")]
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    console.print(table(runs, 50))
    lines = console.file.getvalue().splitlines()
    assert all(shown_only(re.sub(r"\x1b\[[\d;]+m", "", line), "") for line in lines), lines
    for run in runs:
        report_state(Board(runs, live=False), run)
    assert shown_only(capsys.readouterr().out)
