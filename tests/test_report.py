"""The report: its figures are the solution's, its choices the planner's, its page whole by itself."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from costmodel.units import DAY
from planner.answer import days_and_dollars
from planner.cli.app import app
from planner.cli.table import fact_rows, one_line
from planner.cli.words import amount, dollars, seconds, share
from planner.frontier import frontier
from planner.problem import parse_problem
from planner.report import extras
from planner.report.candidates import candidates, shape
from planner.report.choice import Setting, choose
from planner.report.data import explore, report_data
from planner.report.page import as_script, filled, page
from planner.report.pictures import picture, specifications
from planner.resolve import instance_of
from planner.search import Table, best, goal_of
from planner.solution import Solution
from planner.solve import solve
from planner.space.recompute import recompute_families

MIB = 2**20
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PROBLEM = {
    "name": "small </script> & co",
    "model": "llama-7b",
    "training": {"tokens": "100B", "seq_len": 4096, "global_batch": {"min": "1M tokens", "max": "4M tokens"}},
    "hardware": [
        {"gpu": "H800", "nodes": {"max": 8}, "price": "2.00 USD/gpu-hour"},
        {"gpu": "H20", "nodes": {"max": 16}, "price": "0.80 USD/gpu-hour"},
    ],
    "limits": {"deadline": "5 days", "budget": "9000 USD"},
    "objective": "cost",
    "search": {"cp": 1, "micro_batch": [1, 2, 4]},
}
SETTINGS = [
    (1.0, 1.0, 1.0, 1.0),
    (0.5, 1.0, 1.0, 1.0),
    (1.0, 0.5, 1.0, 1.0),
    (0.5, 0.5, 1.0, 0.5),
    (1.0, 1.0, 2.0, 0.5),
]
"""Multiples of deadline, budget and the two prices."""


def solved(**changes):
    return solve(parse_problem(PROBLEM | changes))


@pytest.fixture(scope="module")
def solution():
    return solved()


@pytest.fixture(scope="module")
def data(solution):
    return report_data(solution, time_limit=None)


@pytest.fixture(autouse=True, scope="module")
def kept_library(request):
    """Bundling takes seconds: once for all runs of the tests, and never in the user's own cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(request.config.cache.mkdir("report")))
        yield


@pytest.fixture(scope="module")
def written(data):
    pytest.importorskip("altair")
    pytest.importorskip("vl_convert")
    return page(data)


def embedded(text, name):
    return json.loads(
        re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', text, re.S)[1]
    )


def words(text):
    """What a reader sees: the text of the page without scripts and tags."""
    seen = re.sub(r"<(script|style)\b.*?</\1>", " ", text, flags=re.S)
    return html.unescape(re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", seen)))


def run(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments), "--quiet"])


def saved(folder, solution):
    path = folder / "solution.json"
    path.write_text(solution.to_json(), encoding="utf-8")
    return path


def test_the_page_holds_the_solution_as_its_file_has_it(written, solution):
    assert Solution.model_validate(embedded(written, "planner-data")["solution"]) == solution


def test_every_figure_of_the_text_is_the_solutions(written, solution, data):
    plan, text = solution.plans[0], words(written)
    e = plan.estimate
    for _, fact in fact_rows(plan, 4096):
        assert fact in text
    for part, value in e.breakdown_s.items():
        assert f"{seconds(value)} {share(value / e.step_time_s)}" in text, part
    for each in plan.slack.values():
        assert " ".join(amount(value, each.unit) for value in (each.limit, each.used, each.left)) in text
    for reason in plan.reasons:
        assert reason.text in text
    for other in solution.runner_ups:
        assert other.text in text
        assert other.plan is None or one_line(other.plan) in text
    assert (
        f"Train on {plan.decisions.num_gpus} {plan.decisions.gpu} for {e.days:.1f} days and {dollars(e.dollars)}"
        in text
    )
    for count in (solution.proof.lattice, solution.proof.valid, solution.proof.solved):
        assert f"{count:,}" in text


def test_the_charts_hold_the_solutions_figures(written, solution):
    charts, e = embedded(written, "planner-charts"), solution.plans[0].estimate
    parts = charts["step-time"]["datasets"]["rows"]
    assert sum(row["seconds"] for row in parts) == pytest.approx(e.step_time_s)
    chosen = [row for row in charts["frontier"]["datasets"]["points"] if row["chosen"]]
    assert [(row["days"], row["dollars"]) for row in chosen] == [
        (pytest.approx(e.days), pytest.approx(e.dollars))
    ]
    memory = {}
    for row in charts["stage-memory"]["datasets"]["rows"]:
        memory[row["stage"]] = memory.get(row["stage"], 0.0) + row["gib"]
    assert list(memory.values()) == pytest.approx([s.memory_gib for s in solution.plans[0].decisions.stages])
    assert charts["sensitivity"]["datasets"]["usual"] == [{"usual": e.dollars}]


def test_the_page_is_one_small_file_that_loads_nothing(written):
    assert len(written.encode()) <= 3 * MIB
    assert "default-src 'none'" in written
    outside = re.sub(r"<script\b.*?</script>", "", written, flags=re.S)
    assert not re.search(r"https?://|@import|\bsrc=", outside)
    assert not re.search(r"<script[^>]*\bsrc=", written)


def test_text_of_the_problem_cannot_become_markup(written):
    assert "small &lt;/script&gt; &amp; co" in written
    assert as_script({"a": "</script><!--"}) == '{"a":"\\u003c/script>\\u003c!--"}'
    assert filled("@a@ @b@", {"a": "@b@", "b": "x"}) == "@b@ x"


def test_the_frontier_is_the_planners(data):
    found = frontier(data.problem)
    assert [shape(data.found.candidates[i].plan.decisions) for i in data.frontier()] == [
        shape(point.decisions) for point in found.points
    ]
    assert data.found.complete


@pytest.mark.parametrize("moved", SETTINGS)
def test_the_choice_among_candidates_is_what_solving_again_would_choose(data, moved):
    """Deadline and budget as the sliders move them, and prices."""
    deadline, budget, *prices = moved
    instance = data.instance
    pools = tuple(replace(pool, price=pool.price * x) for pool, x in zip(instance.pools, prices, strict=True))
    limits = replace(
        instance.limits, deadline=instance.limits.deadline * deadline, budget=instance.limits.budget * budget
    )
    other = replace(instance, pools=pools, limits=limits)
    plan = best(Table.of(other, goal_of(other), recompute_families(other)))
    setting = Setting(limits.deadline, limits.budget, dict(enumerate(prices)))
    chosen = choose(instance, data.found.candidates, setting)
    assert (chosen is None) == (plan is None)
    if plan is not None and chosen is not None:
        one = data.found.candidates[chosen]
        days, cost = days_and_dollars(other, plan)
        assert (one.seconds / DAY, one.dollars * prices[one.pool]) == (
            pytest.approx(days),
            pytest.approx(cost),
        )


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": {"cost": 1, "time": "1k USD/day"}},
        {"hardware": [PROBLEM["hardware"][0] | {"committed": "3 days"}, PROBLEM["hardware"][1]]},
    ],
    ids=["weighted", "committed"],
)
def test_other_objectives_and_committed_windows_are_chosen_by_as_well(changes):
    problem = parse_problem(PROBLEM | changes)
    instance = instance_of(problem)
    found = candidates(instance, ()).candidates
    families = recompute_families(instance)
    for factor in (1.0, 0.4):
        limits = replace(instance.limits, deadline=factor * instance.limits.deadline)
        other = replace(instance, limits=limits)
        plan = best(Table.of(other, goal_of(other), families))
        chosen = choose(instance, found, Setting(limits.deadline, limits.budget))
        one, (days, cost) = found[chosen], days_and_dollars(other, plan)
        assert (one.seconds / DAY, one.dollars) == (pytest.approx(days), pytest.approx(cost))


def test_without_moving_anything_the_reported_plan_is_chosen(data, solution):
    chosen = choose(data.instance, data.found.candidates, Setting.of(data.instance))
    assert chosen == data.chosen
    assert data.found.candidates[chosen].plan is solution.plans[0]


def test_sensitivity_is_what_the_planner_would_say(data, solution):
    swings = {swing.name: swing for swing in data.swings}
    usual = solution.plans[0].estimate
    price = swings["price of H800"]
    assert price.low.dollars == pytest.approx(0.9 * usual.dollars)
    assert price.high.days == usual.days
    tokens = solved(training=PROBLEM["training"] | {"tokens": "110B"}).plans[0].estimate
    assert (swings["tokens"].high.days, swings["tokens"].high.dollars) == (
        pytest.approx(tokens.days),
        pytest.approx(tokens.dollars),
    )
    assert (
        swings["network bandwidth"].low.dollars >= usual.dollars >= swings["network bandwidth"].high.dollars
    )
    widths = [
        abs(s.high.dollars - s.low.dollars)
        for s in data.swings
        if None not in (s.low.dollars, s.high.dollars)
    ]
    assert widths == sorted(widths, reverse=True)


def test_links_are_solved_again_at_either_end(data, solution):
    swing = next(swing for swing in data.swings if swing.name == "network bandwidth")
    slower = [
        pool | {"network": f"{of.fabric.nic * 0.9 * 8 / 1e9:.9g} Gbit/s"}
        for pool, of in zip(PROBLEM["hardware"], data.instance.pools, strict=True)
    ]
    again = solved(hardware=slower).plans[0].estimate
    assert (swing.how, swing.low.dollars) == ("solved again", pytest.approx(again.dollars))


def test_a_report_of_an_explored_solution_looks_for_nothing_and_shows_the_same(data, solution, monkeypatch):
    kept = read_back(explore(solution))
    for name in ("planner.report.data.candidates", "planner.report.data.sensitivity"):
        monkeypatch.setattr(name, None)
    again = report_data(kept, time_limit=0.0)
    assert again.found.complete
    assert again.swings == data.swings

    def figures(of):
        return sorted((one.pool, one.seconds, one.dollars) for one in of.found.candidates)

    assert figures(again) == figures(data)
    assert again.chosen == data.chosen == 0


def test_what_was_explored_under_another_cost_model_is_looked_for_again(solution):
    kept = explore(solution)
    first, *rest = kept.explored.plans
    wrong = first.model_copy(
        update={
            "estimate": first.estimate.model_copy(update={"step_time_s": first.estimate.step_time_s * 1.1})
        }
    )
    kept = kept.model_copy(
        update={"explored": kept.explored.model_copy(update={"plans": (wrong, *rest), "swings": ()})}
    )
    assert report_data(kept, time_limit=None).swings


def read_back(solution):
    return type(solution).from_text(solution.to_json())


def test_the_parts_of_every_stage_add_up_to_the_step_and_to_its_memory(data, solution):
    plan = solution.plans[0]
    parts = data.ranks.seconds
    assert sum(parts.values()) == pytest.approx(np.full(plan.decisions.pp, plan.estimate.step_time_s))
    assert all((part >= -1e-9).all() for part in parts.values())
    memory = dict(data.ranks.memory)
    total = memory.pop("total")
    assert sum(memory.values()) == pytest.approx(total)
    assert total.tolist() == pytest.approx([stage.memory_gib for stage in plan.decisions.stages])
    forward, backward = data.ranks.forward, data.ranks.backward
    times = [stage.micro_batch_time_s for stage in plan.decisions.stages]
    assert (forward + backward).sum(axis=1).tolist() == pytest.approx(times)
    assert ((forward / (forward + backward) > 0.2) & (forward / (forward + backward) < 0.5)).all()


def test_the_trace_is_a_step(tmp_path, solution, data):
    path = tmp_path / "step.json"
    assert run(saved(tmp_path, solution), "--trace", path).exit_code == 0
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    d = solution.plans[0].decisions
    assert {event["tid"] for event in events} == set(range(d.pp))
    assert sum(event["cat"] == "forward" for event in events) == d.pp * d.vpp * d.num_microbatches
    end = max(event["ts"] + event["dur"] for event in events) / 1e6
    late = max(each.end for each in data.passes) - data.ranks.pipeline_seconds()
    assert end == pytest.approx(solution.plans[0].estimate.step_time_s + late, abs=1e-5)


def test_charts_are_files_too(tmp_path, solution):
    pytest.importorskip("vl_convert")
    result = run(saved(tmp_path, solution), "--charts", tmp_path / "charts")
    assert result.exit_code == 0, result.output
    drawn = {path.stem: path.read_text() for path in (tmp_path / "charts").iterdir()}
    assert {"frontier", "step-time", "stage-memory", "timeline", "sensitivity"} <= drawn.keys()
    assert all(text.startswith("<svg") and "</svg>" in text for text in drawn.values())
    assert "dollars of the run" in drawn["frontier"]
    assert "GiB of each GPU at the peak" in drawn["stage-memory"]


def test_charts_are_pictures_too(data):
    pytest.importorskip("vl_convert")
    assert picture(specifications(data)["step-time"], "png")[:8] == b"\x89PNG\r\n\x1a\n"


def test_a_problem_without_a_plan_gets_what_would_help():
    pytest.importorskip("altair")
    answer = solved(limits={"deadline": "5 days", "budget": "4000 USD"})
    of = report_data(answer, time_limit=None)
    text = words(page(of))
    assert "proved infeasible" in text
    for move in answer.conflict.relaxations:
        assert f"{move.from_} {move.to}" in text
    assert of.found.candidates
    dearer = Setting(of.instance.limits.deadline, 2 * of.instance.limits.budget)
    assert choose(of.instance, of.found.candidates, Setting.of(of.instance)) is None
    assert choose(of.instance, of.found.candidates, dearer) is not None


def test_a_plan_that_is_not_proved_says_so(solution):
    pytest.importorskip("altair")
    proof = solution.proof.model_copy(update={"gap": 0.031})
    text = words(page(report_data(solution.model_copy(update={"status": "feasible", "proof": proof}))))
    assert "at most 3.1% from the best" in text
    assert "may be up to 3.1 % better" in text


def test_without_time_to_search_the_page_says_that_others_may_be_better(solution):
    pytest.importorskip("altair")
    of = report_data(solution, time_limit=0.0)
    assert not of.found.complete
    assert of.found.unproven == ("H800", "H20")
    text = words(page(of))
    assert "The search for other plans on H800 and H20 ran out of time: better ones may exist" in text
    assert "That the reported plan is the best within the limits is proven." in text
    assert (
        "Not asked, as the time ran out: 10 % less or more GPU memory, NVLink bandwidth and network" in text
    )
    drawn = json.dumps(specifications(of)["frontier"])
    assert "not proven: better plans on H800 and H20 may exist" in drawn


def test_with_time_enough_nothing_is_said_to_be_unproven(data):
    pytest.importorskip("altair")
    text = words(page(data))
    assert "ran out of time" not in text
    assert "Not asked" not in text
    assert "not proven" not in json.dumps(specifications(data)["frontier"])


def test_a_solution_that_todays_model_contradicts_shows_only_its_own_figures(solution):
    pytest.importorskip("altair")
    old = solution.plans[0]
    other = old.model_copy(update={"estimate": old.estimate.model_copy(update={"step_time_s": 9.87})})
    of = report_data(solution.model_copy(update={"plans": (other,)}))
    assert not of.found.candidates
    assert not of.swings
    assert of.ranks is None
    text = words(page(of))
    assert "have changed since this solution was computed" in text
    assert "9.87 s" in text


def test_under_an_agreed_mfu_there_is_no_timeline(tmp_path):
    pytest.importorskip("altair")
    answer = solved(assume_mfu=0.4)
    of = report_data(answer)
    text = words(page(of))
    assert "The pipeline during one step" not in text
    assert "computing at the assumed MFU" in text
    result = run(saved(tmp_path, answer), "--trace", tmp_path / "t.json")
    assert result.exit_code == 2
    assert "agreed" in result.output


def test_without_the_libraries_it_says_what_to_install(tmp_path, solution, monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(extras, "import_module", missing)
    result = run(saved(tmp_path, solution), "-o", tmp_path / "r.html")
    assert result.exit_code == 2
    assert "pip install 'planner[report]'" in result.output
    assert not (tmp_path / "r.html").exists()


def test_nothing_to_write_is_an_error(tmp_path, solution):
    result = run(saved(tmp_path, solution))
    assert result.exit_code == 2
    assert "--output FILE" in result.output


PROBE = """
<script>
const errors = [];
window.addEventListener("error", (event) => errors.push(event.message));
for (const name of ["error", "warn"]) console[name] = (...all) => errors.push(all.join(" "));
const settings = SETTINGS;
window.addEventListener("load", async () => {
  while (document.documentElement.dataset.ready !== "yes") await new Promise((wait) => setTimeout(wait, 20));
  const found = [];
  for (const setting of settings) {
    setting.forEach((factor, i) => {
      const slider = document.getElementById("slider-" + i);
      slider.value = String(factor);
      slider.dispatchEvent(new Event("input"));
    });
    await new Promise((wait) => setTimeout(wait, 200));
    const label = document.querySelector("#chart-frontier .label_marks").textContent;
    const answer = document.getElementById("answer");
    found.push([answer.dataset.chosen, answer.innerText, label]);
  }
  const charts = [...document.querySelectorAll(".chart")].map((place) => [place.id, Boolean(place.querySelector("svg"))]);
  const result = document.createElement("pre");
  result.id = "probe";
  result.textContent = JSON.stringify({ errors, found, charts, wide: document.documentElement.scrollWidth > innerWidth });
  document.body.append(result);
});
</script>
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium to open the page with")
@pytest.mark.parametrize("width", [1200, 390])
def test_in_a_browser_the_sliders_choose_as_the_planner_does(tmp_path, written, data, width):
    path = tmp_path / "report.html"
    path.write_text(written.replace("<main>", PROBE.replace("SETTINGS", json.dumps(SETTINGS)) + "<main>", 1))
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path / 'profile'}",
    ]
    command += [
        f"--window-size={width},900",
        "--virtual-time-budget=20000",
        "--dump-dom",
        Path(path).as_uri(),
    ]
    seen = subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    result = json.loads(html.unescape(re.search(r'<pre id="probe">(.*?)</pre>', seen, re.S)[1]))
    assert result["errors"] == []
    assert all(drawn for _, drawn in result["charts"])
    assert not result["wide"]
    limits = data.instance.limits
    expected = [
        choose(
            data.instance,
            data.found.candidates,
            Setting(limits.deadline * deadline, limits.budget * budget, dict(enumerate(prices))),
        )
        for deadline, budget, *prices in SETTINGS
    ]
    assert [chosen for chosen, _, _ in result["found"]] == ["none" if i is None else str(i) for i in expected]
    assert len(set(expected)) > 2
    # The chart's label names the plan that is chosen now.
    assert all(label and text.startswith(f"{label}:") for _, text, label in result["found"])
    e = data.plan.estimate
    assert f"{e.days:.1f} days, {dollars(e.dollars)}" in result["found"][0][1]
