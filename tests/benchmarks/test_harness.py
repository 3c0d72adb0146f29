"""The harness itself: it measures real systems, tells what it found, and exits with 1 where a target is missed."""

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bench import docs, report, running
from bench.plots import Bar, bars
from bench.running import Bench, Failed
from bench.servers import Place
from bench.side import Clocked
from bench.system import load, names
from bench.verdict import Measured
from bench.workloads import FEW, workloads

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", names())
def test_a_system_is_an_about_and_five_functions(name: str) -> None:
    system = load(name)
    about = system.ABOUT
    assert all(callable(getattr(system, each)) for each in ("prepare", "enqueue", "enqueue_many", "work", "finished"))
    assert all("==" in need for need in about.needs), "a version that is not pinned is another one next year"
    assert all(about.promises)
    assert about.plainest in about.handlers


def test_the_short_run_knows_its_systems() -> None:
    assert set(FEW) <= set(names())
    assert all(workload.few <= set(FEW) for workload in workloads(1_000))


def test_every_workload_has_somebody_who_does_it() -> None:
    for workload in workloads(1_000):
        able = [name for name in workload.few or names() if workload.handler in {None, *load(name).ABOUT.handlers}]
        assert able, workload.name


def test_a_failure_is_named() -> None:
    told = report.summary([], [Measured("leftfold_postgres", "drain", 1, 10.0, {}, "a hash is wrong")], {})
    assert "Failed: leftfold_postgres, drain, round 2: a hash is wrong" in told


def test_who_could_not_be_installed_is_named() -> None:
    assert "Left out: oban: it needs Python 3.12" in report.summary([], [], {"oban": "it needs Python 3.12"})


def test_the_clock_begins_behind_the_first_batches() -> None:
    clocked = Clocked(count=100, size=10, seconds=60.0, warm=2)
    assert [batch[0] for batch in clocked.batches()] == list(range(0, 100, 10))
    assert (clocked.made, clocked.jobs) == (100, 80)
    assert 0 < clocked.seconds < 60


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Bench]:
    """A system that does everything, and says nothing of it."""
    monkeypatch.setattr(running, "_ANSWER_SECONDS", 0.0)
    with ExitStack() as stack:
        yield Bench(
            "leftfold_sqlite", load("leftfold_sqlite").ABOUT, Place(str(tmp_path), "files", None), tmp_path, stack
        )


def test_a_system_that_does_not_answer_is_told_of_and_ended(silent: Bench) -> None:
    with pytest.raises(Failed, match="did not answer"):
        silent.ask("watch", 1)


def run(*given: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *given], capture_output=True, text=True, check=False, timeout=120, cwd=ROOT
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    path = tmp_path_factory.mktemp("bench") / "found.json"
    systems = ["--system", "leftfold_sqlite", "--system", "bare_sqlite"]
    done = run("--only", "verify", "--only", "bulk", "--rounds", "1", *systems, "--out", str(path))
    return done, json.loads(path.read_text(encoding="utf-8"))


def test_a_run_tells_what_it_found(small: tuple[subprocess.CompletedProcess[str], dict[str, Any]]) -> None:
    done, results = small
    found = {(each["workload"], each["system"]): each for each in results["measured"]}
    assert set(found) == {("bulk", "leftfold_sqlite"), ("bulk", "bare_sqlite"), ("verify", "leftfold_sqlite")}
    assert all(each["figures"]["jobs/s"] > 0 and not each["failed"] for each in found.values()), done.stderr
    assert "### Enqueue, in bulk" in done.stdout
    assert "| Leftfold, SQLite |" in done.stdout
    assert "in a hash chain that `verify` checks" in done.stdout


def test_a_run_that_judged_nothing_is_no_success(
    small: tuple[subprocess.CompletedProcess[str], dict[str, Any]],
) -> None:
    done, _ = small
    assert done.returncode == 1
    assert "0 of 10 targets are met" in done.stderr
    assert (
        "Not judged: bulk enqueue, PostgreSQL, jobs/s: leftfold_postgres has figures of 0 of 1 rounds of `bulk`"
        in done.stderr
    )


def test_a_system_that_nobody_knows_is_refused() -> None:
    done = run("--system", "nobody")
    assert done.returncode == 2
    assert "invalid choice: 'nobody'" in done.stderr


def test_a_plot_draws_each_system_as_long_as_its_figure_and_the_best_on_top() -> None:
    plot = bars("Drain", "jobs/s", [Bar("slow & old", 100, "peer"), Bar("ours", 400, "ours")])
    root = ET.fromstring(plot)  # noqa: S314 - we wrote it
    rects = [each for each in root.iter() if each.tag.endswith("rect")]
    assert [each.get("class") for each in rects] == ["ours", "peer"]
    assert float(rects[0].get("width", 0)) == pytest.approx(4 * float(rects[1].get("width", 0)), rel=0.01)
    assert "slow &amp; old" in plot


def test_the_shortest_time_is_on_top() -> None:
    root = ET.fromstring(bars("Latency", "p50 ms", [Bar("a", 5, "peer"), Bar("b", 2, "ours")], less_is_better=True))  # noqa: S314
    assert [each.get("class") for each in root.iter() if each.tag.endswith("rect")] == ["ours", "peer"]


def test_groups_have_headings_the_best_of_each_on_top_and_a_line_for_the_rounds() -> None:
    given = [Bar("a", 5, "peer", "here", (4, 9)), Bar("b", 7, "ours", "here"), Bar("c", 99, "weak", "there")]
    root = ET.fromstring(bars("Drain", "jobs/s", given))  # noqa: S314 - we wrote it
    texts = [each.text for each in root.iter() if each.get("class") == "group"]
    assert texts == ["here", "there"]
    assert [each.get("class") for each in root.iter() if each.tag.endswith("rect")] == ["ours", "peer", "weak"]
    (line,) = [each for each in root.iter() if each.tag.endswith("line") and float(each.get("y1", 0)) > 60]
    assert float(line.get("x1", 0)) < float(line.get("x2", 0))


def test_a_legend_says_what_the_colours_mean() -> None:
    plot = bars("Drain", "jobs/s", [Bar("a", 1, "ours"), Bar("b", 2, "weak")])
    assert ">Leftfold<" in plot
    assert ">peer that may lose jobs in a crash<" in plot
    assert "bare SQL" not in plot


def test_the_page_shows_the_figures_that_stand_beside_it() -> None:
    results = json.loads((ROOT / "docs" / "benchmarks.json").read_text(encoding="utf-8"))
    text = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    assert docs.page(text, results) == text, "render it anew: python -m bench.docs docs/benchmarks.json"
    for name, plot in docs.plots(results).items():
        assert (ROOT / "docs" / "img" / name).read_text(encoding="utf-8") == plot.svg
    assert report.measured_in(results)
