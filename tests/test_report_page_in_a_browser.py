"""The page of `spinup report` in Debian's chromium: what it draws is what the runs say.

Every page that is opened here must load nothing but itself and leave no error on the console.
"""

import fcntl
import itertools
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import sync_playwright

from spinup.cli import report as cli_report
from spinup.parts.errors import UserError
from spinup.parts.latest import write_latest
from spinup.results import curves, report, tables

ARGUMENTS = [
    "--no-sandbox", "--headless", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
DESKTOP, PHONE = dict(width=1280, height=900), dict(width=390, height=844)
ROUNDED = 5.1e-4  # relative error of a number that is shown with four digits
LINES = dict(mean="mean", iqm="interquartile mean", median="median")
HOSTILE = '</script><img src=x onerror="window.ran=1"><script>window.ran=2</script>'


# ---------------------------------------------------------------- a browser


def chromium():
    """Where chromium is; it is installed if it is not there and we may."""
    with open(Path(tempfile.gettempdir()) / "spinup-tests-apt.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers of the suite may come here together
        if shutil.which("chromium") is None and os.geteuid() == 0 and shutil.which("apt-get"):
            environment = os.environ | dict(DEBIAN_FRONTEND="noninteractive")
            for words in (["update"], ["install", "--yes", "--no-install-recommends", "chromium"]):
                subprocess.run(["apt-get", "--quiet", *words], check=True, env=environment)
    found = shutil.which("chromium")
    assert found, "This test looks at a page with a real browser: apt-get install chromium"
    return found


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=ARGUMENTS)
        yield browser
        browser.close()


def watched(context, path, wrong):
    """A page that notes what goes wrong in it: errors, warnings, and what it asks others for."""

    def request(asked):
        if asked.url != path.as_uri() and not asked.url.startswith("data:"):
            wrong.append(asked.url)

    page = context.new_page()
    page.on("console", lambda message: wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", request)
    page.goto(path.as_uri())
    return page


@pytest.fixture
def opened(browser):
    """Opens a file in a window of its own; what goes wrong in it fails the test."""
    contexts, wrong = [], []

    def open_page(path, viewport=DESKTOP, scheme="light"):
        contexts.append(browser.new_context(viewport=viewport, color_scheme=scheme, offline=True))
        return watched(contexts[-1], path, wrong)

    yield open_page
    for context in contexts:
        context.close()
    assert wrong == []


@pytest.fixture(scope="module")
def window(browser, written):
    """One window for the tests that look at the same page, and what has gone wrong in it."""
    context, wrong = browser.new_context(viewport=DESKTOP, color_scheme="light", offline=True), []
    yield watched(context, written, wrong), wrong
    context.close()


@pytest.fixture
def page(window):
    """The page as it is when it has just been opened."""
    page, wrong = window
    page.reload()
    yield page
    assert wrong == []


# ---------------------------------------------------------------- runs to show


def write_run(folder, columns, **config):
    folder.mkdir(parents=True)
    rows = zip(*columns.values())
    lines = ["\t".join(columns), *("\t".join(map(str, row)) for row in rows)]
    (folder / "progress.txt").write_text("\n".join(lines) + "\n")
    (folder / "config.json").write_text(json.dumps(config))


def write_runs(folder):
    """Two experiments of six seeds on one environment, of unequal lengths, and one on another."""
    rng = np.random.default_rng(3)
    for name, env, slope, lr in (
        ("ppo_fast", "Hopper-v5", 12.0, 1e-3),
        ("ppo_slow", "Hopper-v5", 5.0, 3e-4),
        ("sac", "Ant-v5", -3.0, 1e-3),
    ):
        for seed in range(6 if env == "Hopper-v5" else 3):
            epochs = np.arange(30 - 10 * (seed == 1))
            returns = slope * epochs + rng.normal(size=len(epochs)) * 15
            columns = dict(
                Epoch=epochs,
                AverageEpRet=returns,
                TotalEnvInteracts=(epochs + 1) * 1000,
                LossV=rng.uniform(1, 2, len(epochs)),
                Time=np.cumsum(rng.uniform(1, 2, len(epochs))),
            )
            settings = dict(pi_lr=lr, gamma=0.99, ac_kwargs=dict(hidden_sizes=[64, 64]), epochs=30)
            environment = dict(id=env, kwargs={}, max_episode_steps=1000)
            write_run(
                folder / name / f"{name}_s{seed}", columns, exp_name=name, seed=seed,
                environment=environment, algorithm="mine_pytorch", **settings,
            )  # fmt: skip
            (folder / name / f"{name}_s{seed}" / "checkpoint").mkdir()
            write_latest(folder / name / f"{name}_s{seed}", len(epochs), [0])


def write_videos(folder):
    import imageio_ffmpeg
    from PIL import Image

    frames = np.random.default_rng(0).integers(255, size=(8, 48, 64, 3), dtype=np.uint8)
    video = imageio_ffmpeg.write_frames(
        str(folder / "agent.mp4"), (64, 48), fps=8, macro_block_size=2
    )
    video.send(None)
    for frame in frames:
        video.send(np.ascontiguousarray(frame))
    video.close()
    images = [Image.fromarray(frame) for frame in frames]
    images[0].save(folder / "agent.gif", save_all=True, append_images=images[1:])
    (folder / "long.webm").write_bytes(bytes(report.LARGEST_VIDEO + 1))
    (folder / "elsewhere.mp4").symlink_to(folder / "config.json")  # no video, and not its to show


def write_failures(folder):
    broken = folder / "broken" / "broken_s0"
    broken.mkdir(parents=True)
    said = (
        "Epoch 1\n\x1b[32m 10%|#  \r 50%|#####\x1b[0m\nTraceback (most recent call last):\n  <b>\n"
    )
    (broken / "output.txt").write_text(said + "ValueError: the simulator has gone\n")
    (folder / "sac" / "sac_s0" / "output.txt").write_text("Epoch 1\nall is well\n")
    noted = folder / "sac" / "sac_s1"
    (noted / "output.txt").write_text("Killed\n")
    (noted / "job.json").write_text(json.dumps(dict(job=dict(state="failed"))))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report") / "my runs"
    write_runs(folder)
    write_videos(folder / "ppo_fast" / "ppo_fast_s0")
    write_failures(folder)
    return folder


@pytest.fixture(scope="module")
def written(runs):
    cli_report.main([str(runs)])
    return runs / "report.html"


def summary(runs, name, value="AverageEpRet", smooth=1, line="mean", band="ci"):
    found = tables.get_datasets(runs / name)
    plotted = [curves.run_curve(run, "TotalEnvInteracts", value, smooth) for run in found]
    return curves.summarize(plotted, line, band)


def read(page, *keys, panel="Hopper-v5"):
    """What the panel says at the place these keys lead to: {experiment: [value, low, high]}."""
    figure = page.locator("figure.panel").filter(has_text=panel)
    figure.locator(".chart > svg").focus()
    for key in keys:
        page.keyboard.press(key)
    found = {}
    for row in figure.locator(".readout > div").all():
        name, numbers = (span.inner_text() for span in row.locator("span").all())
        found[name] = [
            float(n) for n in re.findall(r"-?[\d.]+(?:e-?\d+)?", numbers.replace("−", "-"))
        ]
    return found


def choose(page, control, value):
    page.locator(f"#{control}").select_option(value)
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


def slide(page, value):
    page.locator("#smooth").fill(str(value))
    page.evaluate(
        "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    )


# ---------------------------------------------------------------- curves


def test_curves_equal_those_of_spinup_plot(page, runs, tmp_path):
    assert page.locator("figure.panel h3").all_inner_texts() == ["Hopper-v5", "Ant-v5"]
    shown = page.locator(".curve").evaluate_all("found => found.map(n => n.dataset.experiment)")
    assert sorted(shown) == ["ppo_fast", "ppo_slow", "sac"]
    points = page.locator(".curve[data-experiment=ppo_fast]").get_attribute("d")
    assert points.count("L") == 29
    for keys, i in ((["Home"], 0), (["ArrowRight"] * 4, 4), (["End"], 29), (["ArrowLeft"] * 3, 26)):
        told = read(page, *keys)
        for name in ("ppo_fast", "ppo_slow"):
            _, line, low, high, _ = summary(runs, name)
            assert told[name] == pytest.approx([line[i], low[i], high[i]], rel=ROUNDED)
    page.screenshot(path=tmp_path / "curves.png")
    captions = page.locator("figure.panel figcaption").all_inner_texts()
    assert (
        "Line: mean of 5 to 6 runs; band: 95 % bootstrap interval. Performance: AverageEpRet."
        in captions
    )


def test_another_column_another_axis(page, runs):
    before = page.locator(".curve[data-experiment=ppo_fast]").get_attribute("d")
    choose(page, "y", "LossV")
    assert page.locator(".curve[data-experiment=ppo_fast]").get_attribute("d") != before
    told = read(page, "End")
    for name in ("ppo_fast", "ppo_slow"):
        assert told[name][0] == pytest.approx(summary(runs, name, "LossV")[1][-1], rel=1e-3)
    assert "LossV" in page.locator(".chart").first.inner_text()
    choose(page, "x", "Time")
    assert "Time" in page.locator(".chart").first.inner_text()
    shown = page.locator("#y option").all_inner_texts()
    assert shown == ["Performance", "Epoch", "AverageEpRet", "TotalEnvInteracts", "LossV", "Time"]


def test_smoothing_is_that_of_spinup_plot(page, runs):
    for window in (2, 5, 14):
        slide(page, window)
        assert page.locator("#smoothed").inner_text() == f"{window} points"
        assert f"smoothed over {window} points" in page.locator("figcaption").first.inner_text()
        for keys, i in ((["Home"], 0), (["End"], 29), (["ArrowLeft"] * 8, 21)):
            told = read(page, *keys)
            for name in ("ppo_fast", "ppo_slow"):
                line = summary(runs, name, smooth=window)[1]
                assert told[name][0] == pytest.approx(line[i], rel=1e-3, abs=1e-2)


def test_lines_and_bands_are_those_of_spinup_plot(page, runs):
    for line, band in itertools.product(LINES, curves.BANDS):
        choose(page, "line", line)
        choose(page, "band", band)
        told = read(page, "End")
        for name in ("ppo_fast", "ppo_slow"):
            _, middle, low, high, _ = summary(runs, name, line=line, band=band)
            edges = [] if band == "none" else [low[-1], high[-1]]
            assert told[name] == pytest.approx([middle[-1], *edges], rel=ROUNDED)
        assert page.locator(".area").count() == (0 if band == "none" else 3)
        assert f"Line: {LINES[line]} of " in page.locator("figcaption").first.inner_text()


def test_each_run_by_itself(page):
    page.locator("#single").check()
    page.wait_for_selector(".one")
    assert (page.locator(".one").count(), page.locator(".area").count()) == (15, 0)
    assert page.locator("figcaption").first.inner_text().startswith("Each line: one run")


def test_the_legend_hides_and_shows_by_keyboard(page):
    button = page.get_by_role("button", name="ppo_slow")
    button.focus()
    page.keyboard.press("Space")
    page.wait_for_selector(".curve[data-experiment=ppo_slow]", state="detached")
    assert button.get_attribute("aria-pressed") == "false"
    assert list(read(page, "End")) == ["ppo_fast"]
    button.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector(".curve[data-experiment=ppo_slow]", state="attached")
    assert button.get_attribute("aria-pressed") == "true"


def test_the_pointer_reads_values(page):
    chart = page.locator("figure.panel").filter(has_text="Hopper-v5").locator(".chart")
    box = chart.bounding_box()
    assert not chart.locator(".readout").is_visible()
    page.mouse.move(box["x"] + box["width"] - 16, box["y"] + 50)
    assert chart.locator(".readout b").inner_text() == "TotalEnvInteracts 30k"
    inside = chart.locator(".readout").bounding_box()
    assert box["x"] <= inside["x"] and inside["x"] + inside["width"] <= box["x"] + box["width"]
    page.mouse.move(5, 5)
    assert not chart.locator(".readout").is_visible()


# ---------------------------------------------------------------- tables, videos, failures


def test_the_results_are_those_of_spinup_compare(page, runs, capsys):
    from spinup.cli import compare as cli_compare

    cli_compare.main([str(runs), "--json"])
    found = json.loads(capsys.readouterr().out)
    rows = page.locator('[aria-label="Final performance"] tbody tr')
    shown = [re.split(r"[\t\n]+", row.inner_text().strip()) for row in rows.all()]
    for cells, result in zip(shown, found["experiments"], strict=True):
        low, high = result["iqm_interval"]
        decimals = 1 if result["environment"] == "Hopper-v5" else 2  # by the largest score
        numbers = [result["mean"], result["iqm"], low, high]
        expected = "{} {} {} to {}".format(*(f"{n:.{decimals}f}" for n in numbers))
        assert cells[:2] == [result["experiment"], str(result["seeds"])]
        assert " ".join(cells[3:6]).replace("−", "-") == expected
    (pair,) = found["improvement"]
    cell = (
        page.locator('[aria-label="Probability of improvement"] tbody tr')
        .first.locator("td")
        .nth(1)
    )
    assert cell.inner_text().split()[0] == f"{pair['probability']:.2f}"
    warnings = page.locator("#warnings").inner_text()
    for warning in found["warnings"]:
        assert warning in warnings


def test_settings_that_differ_are_marked(page):
    table = page.locator("#settings table")
    visible = [row.locator("th").inner_text() for row in table.locator("tbody tr:visible").all()]
    assert [name.split()[0] for name in visible] == ["environment:id", "pi_lr"]
    assert table.locator("mark").all_inner_texts() == ["Ant-v5", "0.0003"]
    heads = table.locator("thead th").all_inner_texts()
    assert heads == [
        "setting",
        "ppo_fast\nHopper-v5, seeds 0 to 5",
        "ppo_slow\nHopper-v5, seeds 0 to 5",
        "sac\nAnt-v5, seeds 0 to 2",
    ]
    page.locator("#only").uncheck()
    everything = [
        row.locator("th").inner_text().split()[0] for row in table.locator("tbody tr:visible").all()
    ]
    assert "ac_kwargs:hidden_sizes" in everything and "gamma" in everything
    assert "seed" not in everything


def test_videos_are_inside_the_page_and_play(page):
    captions = page.locator(".videos figcaption").all_inner_texts()
    where = "ppo_fast/ppo_fast_s0"
    assert captions == [
        f"{where}/agent.gif",
        f"{where}/agent.mp4",
        f"{where}/long.webm: left out, it has 8.0 MB",
    ]
    page.locator(".videos").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('video').readyState >= 2")
    assert page.evaluate("() => document.querySelector('video').videoWidth") == 64
    assert page.evaluate("() => document.querySelector('.videos img').naturalWidth") == 64


def test_failures_show_their_last_lines(page):
    assert page.locator("#failures h3").all_inner_texts() == ["broken/broken_s0", "sac/sac_s1"]
    words = page.locator("#failures pre").first.inner_text()
    assert words == (
        "Epoch 1\n 50%|#####\nTraceback (most recent call last):\n  <b>\n"
        "ValueError: the simulator has gone"
    )
    rows = page.locator('[aria-label="Runs"] tbody tr').all()
    states = {row.locator("th").inner_text(): row.locator("td").last.inner_text() for row in rows}
    assert len(states) == 15
    assert states["sac/sac_s1"] == "failed" and states["sac/sac_s0"] == "finished"
    assert states["ppo_fast/ppo_fast_s1"] == "stopped"


# ---------------------------------------------------------------- looks


def luminance(color):
    channels = [int(c) / 255 for c in re.findall(r"\d+", color)[:3]]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


def contrast(page, selector):
    """How well text stands out from the page, as WCAG counts it."""
    script = "n => [getComputedStyle(n).color, getComputedStyle(document.body).backgroundColor]"
    ink, paper = (luminance(c) for c in page.locator(selector).first.evaluate(script))
    return (max(ink, paper) + 0.05) / (min(ink, paper) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_can_be_read_anywhere(opened, written, tmp_path, scheme, viewport):
    page = opened(written, viewport, scheme)
    page.screenshot(path=tmp_path / f"{viewport['width']}-{scheme}.png", full_page=True)
    background = "() => getComputedStyle(document.body).backgroundColor"
    assert (luminance(page.evaluate(background)) < 0.2) == (scheme == "dark")
    for selector in ("h1", "p.quiet", "figcaption", "nav a", ".failed", "#settings mark"):
        assert contrast(page, selector) >= 4.5, selector
    overflow = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"
    assert page.evaluate(overflow) == 0
    boxes = page.locator(".box").evaluate_all(
        "found => found.map(n => [n.getBoundingClientRect().right, n.scrollWidth > n.clientWidth])"
    )
    assert all(right <= viewport["width"] for right, _ in boxes)
    if viewport is PHONE:  # the wide tables scroll, each inside its own box
        assert any(scrolls for _, scrolls in boxes)
    small = page.locator("button, select, input").evaluate_all(
        "found => found.filter(n => n.getBoundingClientRect().height < 16).length"
    )
    assert small == 0


@pytest.mark.parametrize("scheme, other", [("light", "dark"), ("dark", "light")])
def test_the_button_turns_the_light_on_and_off(opened, written, scheme, other):
    page = opened(written, scheme=scheme)
    background = "() => getComputedStyle(document.body).backgroundColor"
    first = page.evaluate(background)
    line = "() => getComputedStyle(document.querySelector('.curve')).stroke"
    stroke = page.evaluate(line)
    page.get_by_role("button", name=f"Show the page {other}").click()
    assert (luminance(page.evaluate(background)) < 0.2) == (other == "dark")
    assert page.evaluate(line) != stroke
    page.get_by_role("button", name=f"Show the page {scheme}").click()
    assert page.evaluate(background) == first


def test_nothing_jumps(opened, written):
    page = opened(written, PHONE)
    places = """() => [...document.querySelectorAll('section, figure')]
        .map((n) => n.getBoundingClientRect().top + scrollY)"""
    before = page.evaluate(places)
    choose(page, "line", "iqm")
    slide(page, 12)  # the longest caption
    assert page.evaluate(places) == before
    slide(page, 1)
    choose(page, "y", "LossV")
    choose(page, "band", "none")  # a shorter one
    assert page.evaluate(places) == before
    read(page, "End")
    page.get_by_role("button", name="ppo_slow").click()
    assert page.evaluate(places) == before


def test_the_charts_follow_the_width(opened, written):
    page = opened(written)
    page.set_viewport_size(PHONE)
    page.wait_for_function(
        "() => { const s = document.querySelector('.chart > svg');"
        "return Math.abs(s.viewBox.baseVal.width - s.getBoundingClientRect().width) < 1; }"
    )
    assert page.evaluate("() => document.querySelector('.chart > svg').viewBox.baseVal.width") < 390


def test_the_colours_are_those_of_spinup_plot():
    style = Path(report.__file__).with_suffix(".css").read_text()
    assert tuple(re.findall(r"--c\d: light-dark\((#\w+),", style)) == curves.COLORS


# ---------------------------------------------------------------- nothing else gets in or out


def test_what_runs_say_is_text_and_never_code(opened, tmp_path):
    folder = tmp_path / "<img src=x onerror=window.ran=4>"
    for seed in (0, 1):
        run = folder / f"<svg onload=window.ran=3>_s{seed}"
        columns = {
            "Epoch": [0, 1],
            "AverageEpRet": [1.0, 2.0],
            HOSTILE: [3, 4],
            "TotalEnvInteracts": [1, 2],
        }
        write_run(
            run,
            columns,
            exp_name=HOSTILE + "{{script}}",
            seed=seed,
            environment=dict(id=HOSTILE),
            setting={HOSTILE: HOSTILE, "other": 1},
            algorithm="\u2028</script>",
        )
        (run / "output.txt").write_text(f"{HOSTILE}\nRuntimeError: {HOSTILE}\n")
        (run / "<b onclick=window.ran=5>.gif").write_bytes(b"GIF89a")
    output = tmp_path / "page.html"
    cli_report.main([str(folder), "-o", str(output)])
    page = opened(output)
    choose(page, "y", HOSTILE)
    page.locator("#single").check()
    assert page.locator("h1").inner_text() == folder.name
    assert page.locator("#legend button").inner_text() == HOSTILE + "{{script}}"
    assert HOSTILE in page.locator("#settings").inner_text()
    assert HOSTILE in page.locator("#failures pre").first.inner_text()
    assert page.locator("script").count() == 2 and page.locator("svg[onload], b").count() == 0
    assert page.evaluate("() => window.ran") is None
    # Even a tag that got in would be stopped by the page's own rules.
    text = output.read_text()
    worse = tmp_path / "worse.html"
    worse.write_text(text.replace("<main>", "<main><script>window.ran = 9</script>"))
    context = page.context.browser.new_context()
    visited = context.new_page()
    visited.goto(worse.as_uri())
    assert visited.evaluate("() => window.ran") is None
    assert visited.locator(".curve").count() == 1  # and the page's own script still runs
    context.close()


def test_it_is_one_file(written):
    text = written.read_text()
    assert re.findall(r"""(?:src|href)=["'](?!data:|#)[^"']*""", text) == []
    assert "url(" not in text and "@import" not in text and "fetch(" not in text
    assert "default-src 'none'" in text


# ---------------------------------------------------------------- the command


def test_runs_of_the_original_and_single_runs_have_a_page(opened, tmp_path):
    run = tmp_path / "2019-01-22_10-11-12-cmd_ppo_s0"
    write_run(run, dict(Epoch=[0], AverageEpRet=[21.5], TotalEnvInteracts=[4000]))
    (run / "config.json").unlink()
    cli_report.main([str(run)])
    page = opened(run / "report.html")
    assert page.locator("circle.curve").count() == 1  # a single epoch is a point
    assert page.locator("#settings").is_hidden() and page.locator("#videos").is_hidden()
    assert page.locator('[aria-label="Runs"] tbody th').inner_text() == run.name


def test_the_title_the_file_and_the_column_can_be_chosen(opened, runs, tmp_path, capsys):
    output = tmp_path / "notes.html"
    cli_report.main(
        [str(runs / "ppo"), "-o", str(output), "--title", "Monday", "-y", "LossV", "--last", "1"]
    )
    assert capsys.readouterr().out == f"Wrote {output}\n"
    page = opened(output)
    assert page.title() == page.locator("h1").inner_text() == "Monday"
    assert page.locator("#y").input_value() == "LossV"
    assert "Compared by LossV" in page.locator("#results").inner_text()
    assert "its last epoch" in page.locator("#results").inner_text()


def test_long_runs_are_thinned_and_it_is_said(opened, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "MOST_NUMBERS", 2 * 6 * 50)
    for seed in (0, 1):
        epochs = np.arange(400)
        columns = dict(Epoch=epochs, AverageEpRet=epochs * 2.0, TotalEnvInteracts=epochs)
        write_run(tmp_path / f"x_s{seed}", columns, exp_name="x", seed=seed)
    cli_report.main([str(tmp_path)])
    page = opened(tmp_path / "report.html")
    assert "plotted through" in page.locator("#warnings").inner_text()
    assert 40 < page.locator(".curve").get_attribute("d").count("L") < 60
    page.locator(".chart > svg").focus()
    page.keyboard.press("End")
    assert page.locator(".readout > div").inner_text().split() == ["x", "798", "[798,", "798]"]


@pytest.mark.parametrize(
    "words, message",
    [
        (["-o", "report.pdf"], "report.pdf should end in .html"),
        (["-o", "no/such/folder/x.html"], "Cannot write no.such.* Choose a file with -o"),
        (["-y", "Performanc"], "no column 'Performanc'. Did you mean 'Performance'"),
    ],
)
def test_settings_that_make_no_sense(runs, words, message):
    with pytest.raises(UserError, match=message):
        cli_report.main([str(runs), *words])
