"""The page, the figures and what the command prints: hostile names, no network, light and dark, the same bytes."""

import base64
import html
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import pytest
from report_logs import rising, rows, write_jsonl, write_run

from dara_trl.cli import main
from dara_trl.report.figures import calibrated_ratio, cap_of, file_stem
from dara_trl.report.sources import load_runs


HOSTILE = "<script>alert('x')</script>\"><img src=http://evil.example/a.png> $x^2$ & _y ../../up \x1b[31m"


def report(capsys, *arguments):
    status = main(["report", *map(str, arguments)])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


@pytest.fixture
def no_figures(monkeypatch):
    """They take the most of the time."""
    monkeypatch.setattr("dara_trl.report.figures.draw", lambda setting: [])


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A report on two methods, one of which has three seeds and evaluations."""
    root = tmp_path_factory.mktemp("made")
    for seed, at in enumerate((4, 5, 99)):
        write_run(root / "runs", "dara_asym", seed, rows(rising(at, 30), evaluations={10: 0.5, 20: 0.9}))
    write_run(root / "runs", "gdpo", 0, rows(rising(9, 30)))
    assert main(["report", str(root / "runs"), "--output", str(root / "out"), "--threshold", "format=0.8"]) == 0
    return root


@pytest.fixture(scope="module")
def page(made):
    return (made / "out" / "report.html").read_text(encoding="utf-8")


def test_page_needs_no_network(page):
    assert "default-src 'none'; style-src 'unsafe-inline'; img-src data:" in page
    links = re.findall(r"(?:src|srcset|href|action|poster|data)\s*=\s*[\"']?([^\"'\s>]+)", page)
    assert len(links) > 10
    assert all(link.startswith(("#", "data:image/svg+xml;base64,")) for link in links)
    assert not re.search(r"https?:|<script|@import|url\(|<link|<iframe", page)


def test_page_says_what_was_found(page):
    text = html.unescape(re.sub(r"<[^>]+>", " ", page))
    assert "format ≥ 0.8, median rule: dara_asym first, at step 5; then gdpo 9." in text
    assert "Not tested, fewer than two pairs with gdpo: dara_asym, ratio 0.444." in text
    assert "left out for want of a pair: dara_asym 1, dara_asym 2" in text
    assert "0123456789ab  with uncommitted changes" in text
    assert "trl 1.16.0" in text
    assert "the mean over the last 10 values is at least the threshold, there and at the following values, 20" in text
    assert all(target in page for target in re.findall(r'href="#([^"]+)"', page))
    assert {"Rewards in training", "Held-out rewards", "Density", "Weights"} <= set(re.findall(r'alt="([^",]+)', page))


def test_window_and_stay_are_in_the_definitions(made, capsys, no_figures):
    report(capsys, made / "runs", "--output", made / "other", "--window", 3, "--stay", 4)
    text = (made / "other" / "report.html").read_text(encoding="utf-8")
    assert "the mean over the last 3 values is at least the threshold, there and at the following values, 4" in text


def test_figures_are_readable_files_with_text(made):
    figures = sorted((made / "out" / "figures").iterdir())
    names = {"rewards", "held_out", "density", "energy", "weights"}
    assert {path.name for path in figures} == {
        f"s-{name}{theme}.{form}" for name in names for theme in ("", "-dark") for form in ("png", "svg")
    }
    for path in figures:
        if path.suffix == ".png":
            assert path.read_bytes().startswith(b"\x89PNG")
        else:
            texts = [e.text for e in ElementTree.parse(path).iter() if e.tag.endswith("}text")]
            assert {"format", "dara_asym", "step"} <= {text and text.strip() for text in texts}, path
    assert "cap 5" in (made / "out" / "figures" / "s-weights.svg").read_text()


def test_the_same_input_gives_the_same_bytes(tmp_path, capsys):
    for method, at in (("gdpo", 4), ("dara", 2), ("grpo", 5)):
        logged = [{"step": step, "rewards/r/mean": value} for step, value in enumerate(rising(at, 6), 1)]
        write_run(tmp_path / "runs", method, 0, logged, thresholds={"r": 0.8})
    report(capsys, tmp_path / "runs", "--output", tmp_path / "one")
    command = [
        sys.executable,
        "-m",
        "dara_trl",
        "report",
        str(tmp_path / "runs"),
        "--output",
        str(tmp_path / "two"),
    ]
    subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "1"}, capture_output=True, check=True)
    paths = [path.relative_to(tmp_path / "one") for path in (tmp_path / "one").rglob("*") if path.is_file()]
    assert len(paths) == 5
    assert all((tmp_path / "one" / path).read_bytes() == (tmp_path / "two" / path).read_bytes() for path in paths)


def test_long_runs_make_no_heavy_page(tmp_path, capsys):
    for seed in range(2):
        logged = [{"step": step, "rewards/r/mean": step % 97 / 100} for step in range(1, 5001)]
        write_run(tmp_path / "runs", "gdpo", seed, logged, thresholds={"r": 0.96})
    _, out, _ = report(capsys, tmp_path / "runs", "--output", tmp_path / "out")
    assert re.search(r"median +gdpo +2 +96 ", out)  # the table is of every step
    assert (tmp_path / "out" / "report.html").stat().st_size < 400_000


def test_hostile_names_are_text(tmp_path, capsys):
    for seed in (0, 1):
        for i, method in enumerate((HOSTILE, "_hidden", "long" * 500)):
            more = {"setting": f"../{HOSTILE}", "thresholds": {HOSTILE: 0.8}, "baseline": HOSTILE}
            logged = [{"step": step, f"rewards/{HOSTILE}/mean": step / 3} for step in range(1, 6)]
            write_run(tmp_path / "runs", method, seed, logged, folder=f"{i}/{seed}", **more)
    before = {path for path in tmp_path.rglob("*") if "runs" not in path.parts}
    status, out, _ = report(capsys, tmp_path / "runs", "--output", tmp_path / "deep" / "out")
    assert status == 0
    text = (tmp_path / "deep" / "out" / "report.html").read_text(encoding="utf-8")
    assert "<script" not in text
    assert "<img src=http" not in text
    assert html.escape("<script>alert(") in text
    assert re.findall(r"<img [^>]*src=\"(.{5})", text) == ["data:"] * text.count("<img ")
    assert "\x1b" not in out
    new = {path for path in tmp_path.rglob("*") if "runs" not in path.parts} - before
    assert all((tmp_path / "deep") in (path, *path.parents) for path in new)
    figures = list((tmp_path / "deep" / "out" / "figures").iterdir())
    assert len(figures) == 4  # rewards only
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,100}", path.name) for path in figures)
    for path in figures:
        if path.suffix == ".svg":
            ElementTree.parse(path)
    # matplotlib would leave it out of a legend
    assert all(">_hidden<" in path.read_text() for path in figures if path.suffix == ".svg")


def test_file_stems_are_unique_and_plain():
    taken = set()
    stems = [file_stem(name, "rewards", taken) for name in ("a/b", "a b", "A/B", "../..", "", "é", "x" * 300)]
    assert len({stem.lower() for stem in stems}) == len(stems)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,80}", stem) for stem in stems)


def test_json_is_the_table(made, capsys, no_figures):
    arguments = (made / "runs", "--output", made / "json", "--threshold", "format=0.8")
    status, out, _ = report(capsys, *arguments, "--json")
    assert status == 0
    results = json.loads(out, parse_constant=lambda name: pytest.fail(name))
    (setting,) = results["settings"]
    text = (made / "json" / "report.html").read_text(encoding="utf-8")
    tables = dict(re.findall(r'aria-label="(format [^"]+? rule)"><table>(.*?)</table>', text, re.DOTALL))
    assert len(tables) == 4
    for rule in setting["thresholds"][0]["rules"]:
        name = {"held_out": "held-out"}.get(rule["rule"], rule["rule"])
        body = next(table for label, table in tables.items() if f", {name} rule" in label)
        shown = re.findall(r'class="name">([^<]+)</span>.*?<strong>([^<]+)</strong>', body)
        expected = [
            (row["label"], f"{s['step']:g}" if (s := row["result"])["reached"] else f"&gt; {s['last_step']:g}")
            for row in rule["rows"]
        ]
        assert shown == expected
    assert results["page"] == str(made / "json" / "report.html")
    assert results["options"]["window"] == 10


def test_printed_table(made, capsys, no_figures):
    arguments = (made / "runs", "--output", made / "printed", "--threshold", "format=0.8")
    _, out, _ = report(capsys, *arguments)
    assert re.search(r"format ≥ 0\.8 +median +gdpo +1 +9 ", out)
    assert re.search(r"dara_asym +3 +5 +4 to > 30 +0\.444 +no test", out)
    assert "\x1b" not in out
    assert out.rstrip().endswith("report.html")


def test_plain_runs_have_rewards_only(tmp_path, capsys):
    logged = [{"step": step, "rewards/r/mean": step / 10} for step in range(1, 6)]
    write_jsonl(tmp_path / "plain" / "metrics.jsonl", logged)
    status, out, _ = report(capsys, tmp_path / "plain", "--output", tmp_path / "out")
    assert status == 0
    assert "no thresholds" in out
    assert {path.stem for path in (tmp_path / "out" / "figures").glob("*.svg")} == {
        "default-rewards",
        "default-rewards-dark",
    }
    assert "No threshold was given" in (tmp_path / "out" / "report.html").read_text()


def test_bad_options_are_errors_without_a_page(made, tmp_path, capsys):
    for arguments, message in (
        (["--threshold", "format"], "expected NAME=VALUE"),
        (["--threshold", "format=nan"], "expected NAME=VALUE"),
        (["--threshold", "gone=1"], "Rewards: format, other"),
        (["--baseline", "gone"], "Labels: dara_asym, gdpo"),
    ):
        status, out, err = report(capsys, made / "runs", "--output", tmp_path / "out", *arguments)
        assert (status, out) == (2, "")
        assert message in err
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").write_text("")
    assert report(capsys, made / "runs", "--output", tmp_path / "file")[0] == 2
    with pytest.raises(SystemExit):
        main(["report", str(made / "runs"), "--window", "0"])


def test_what_to_install_is_said(made, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "matplotlib" else object())
    status, _, err = report(capsys, made / "runs")
    assert status == 2
    assert "matplotlib missing; pip install 'dara-trl[report]'" in err


def test_calibrated_ratio_is_to_the_largest_of_each_step(tmp_path):
    energies = {"a": [1.0, 8.0, 0.0, None], "b": [2.0, 4.0, 0.0, 3.0]}
    logged = [
        {"step": i + 1, "rewards/a/mean": 0.0, **{f"dara/calibrated_energy/{k}": v[i] for k, v in energies.items()}}
        for i in range(4)
    ]
    write_run(tmp_path, "gdpo", 0, logged, config={"aggregation_max_weight": 3})
    ((run,), _) = load_runs([str(tmp_path)])
    assert calibrated_ratio(run, "a") == ([1, 2], [0.5, 1.0])
    assert calibrated_ratio(run, "b") == ([1, 2, 4], [1.0, 0.5, 1.0])  # without any energy there is no ratio
    assert cap_of(run) == 3.0


def chromium():
    names = [os.environ.get("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"]
    found = next((path for name in names if name and (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("no chromium, chromium-browser or google-chrome here (or in the variable CHROMIUM)")
    return found


def browse(page, profile, *arguments):
    switches = (
        "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --hide-scrollbars "
    )
    switches += "--disable-component-update --disable-sync --virtual-time-budget=5000"
    command = [chromium(), *switches.split(), f"--user-data-dir={profile}", *arguments, page.as_uri()]
    return subprocess.run(command, capture_output=True, timeout=120, check=True).stdout.decode()


def test_page_renders_in_a_browser_in_light_and_dark(made, tmp_path):
    from matplotlib.image import imread

    page = made / "out" / "report.html"
    grounds = []
    for scheme, name in ((1, "light"), (0, "dark")):  # Blink's PreferredColorScheme: 0 is dark
        picture = tmp_path / f"{name}.png"
        arguments = (
            f"--screenshot={picture}",
            "--window-size=900,3500",
            f"--blink-settings=preferredColorScheme={scheme}",
        )
        browse(page, tmp_path / name, *arguments)
        pixels = (imread(picture)[..., :3] * 255).round().astype(int)
        grounds.append(tuple(pixels[2, 2]))
        # The curves are there: the colour of the first method in this theme.
        colour = {"light": (0x00, 0x72, 0xB2), "dark": (0x4A, 0xA8, 0xE0)}[name]
        assert (abs(pixels - colour).max(axis=-1) <= 2).sum() > 200, name
    assert grounds == [(255, 255, 255), (13, 17, 23)]


def test_every_picture_loads(made, tmp_path):
    # The page allows no script, so a copy without its policy measures the pictures.
    text = (made / "out" / "report.html").read_text(encoding="utf-8")
    script = (
        "<script>addEventListener('load', () => { document.title += ' ' + JSON.stringify({"
        "sizes: [...document.images].map(image => image.naturalWidth), "
        "overflow: document.documentElement.scrollWidth > innerWidth}) })</script>"
    )
    copy = tmp_path / "copy.html"
    copy.write_text(re.sub(r"<meta http-equiv[^>]+>", script, text), encoding="utf-8")
    for width in (400, 1600):
        dom = browse(copy, tmp_path / f"profile{width}", "--dump-dom", f"--window-size={width},900")
        title = html.unescape(re.search(r"<title>(.*?)</title>", dom)[1])
        assert title.startswith("Training with format and other {")
        measured = json.loads(title[title.index("{") :])
        assert len(measured["sizes"]) == 5
        assert min(measured["sizes"]) > 300
        assert not measured["overflow"]  # tables and figures scroll inside themselves


def test_embedded_pictures_are_the_files(made, page):
    light = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"', page)
    assert base64.b64decode(light[0]) == (made / "out" / "figures" / "s-rewards.svg").read_bytes()
