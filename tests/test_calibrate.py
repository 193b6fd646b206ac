"""`planner calibrate` finds again what made the measurements, and refuses what cannot be measurements."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from data.calibrate.make import GEMM, TRUTH, WARM, files, log_text, nccl_text
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from costmodel.calibration.apply import calibrated_stack
from costmodel.calibration.collective import collective_seconds, fit_collective, nonnegative
from costmodel.calibration.factors import Priors, fit_factors, priors
from costmodel.calibration.gemm import GemmTable, constants_of, fit_gemm, gemm_seconds
from costmodel.collectives import domain_collective_time
from costmodel.estimate import estimate
from costmodel.stack import load_stack
from hardware.accelerator import Calibration, LinkFactors
from hardware.calibration import calibrated_accelerator
from hardware.catalogue import load_accelerator
from hardware.errors import HardwareFileError
from planner.calibrate.assemble import Inputs, calibrate
from planner.calibrate.nccl_tests import read_nccl_tests
from planner.calibrate.step_log import read_step_log
from planner.calibrate.steps import predicted_seconds
from planner.calibrate.unmeasured import known_curve
from planner.cli.app import app
from planner.estimates import estimated
from planner.pool import Pool
from planner.problem import load_problem, parse_problem
from planner.runs import describe, read_runs
from planner.solve import solve
from planner.validate import violations
from scripts import score_calibration

DATA = Path(__file__).parent / "data" / "calibrate"
EXAMPLE = Path(__file__).parent.parent / "problems" / "70b_3T_60days.yaml"
H800 = load_accelerator("H800")
RUN = DATA / "run.yaml"


def run(*args: object):
    return CliRunner().invoke(app, ["calibrate", *map(str, args)], env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def outcome():
    """Everything under tests/data/calibrate, calibrated together."""
    nccl = sorted(DATA.glob("*.txt"))
    return calibrate(H800, Inputs(nccl, [DATA / "gemm.csv"], [DATA / "train.log"], [str(RUN)]))


@pytest.fixture(scope="module")
def cluster(outcome):
    return calibrated_accelerator(H800, outcome.overlay, "test")


def fit_of(outcome, what):
    return next(fit for fit in outcome.fits if fit.what.startswith(what))


# What is measured is found again -----------------------------------------------------------------------


@pytest.mark.parametrize("name", list(files()))
def test_the_data_are_what_their_script_makes(name):
    assert (DATA / name).read_text(encoding="utf-8") == files()[name]


@pytest.mark.parametrize(("op", "size"), [("all_reduce", 8e6), ("all_gather", 1e9), ("all_reduce", 1e5)])
def test_a_measured_collective_takes_its_true_time(cluster, op, size):
    share = 7 / 8 * (2 if op == "all_reduce" else 1)
    true = collective_seconds(np.array(TRUTH[op]), np.array([size * share]))[0]
    assert domain_collective_time(cluster, op, size, 8) == pytest.approx(true, rel=0.03)
    assert domain_collective_time(H800, op, size, 8) != pytest.approx(true, rel=0.05)


def test_collectives_that_were_not_measured_move_with_the_link(cluster):
    for op, ranks in (("reduce_scatter", 8), ("all_to_all", 8), ("all_gather", 4)):
        slower = domain_collective_time(cluster, op, 1e9, ranks) / domain_collective_time(
            H800, op, 1e9, ranks
        )
        assert 1.08 < slower < 1.35


def test_the_network_is_as_slow_as_all_to_all_and_sendrecv_show(outcome):
    found, stack = outcome.overlay["calibration"]["network"], load_stack("megatron-core")
    nic, pair = 50e9, TRUTH["sendrecv_2n"][1]
    assert found["point_to_point"] == pytest.approx(pair / (stack.pipeline.nic_efficiency * nic), rel=0.06)
    expected = min(stack.expert_parallel.alltoall_nic * nic, stack.expert_parallel.nic_cap) * 15 / 8
    assert found["all_to_all"] == pytest.approx(TRUTH["alltoall_2n"][1] / expected, rel=0.06)


def test_a_ring_that_nvlink_may_limit_says_nothing_about_a_nic(outcome):
    found = outcome.overlay["calibration"]["network"]
    assert found["ring"] == pytest.approx((found["all_to_all"] * found["point_to_point"]) ** 0.5, rel=1e-3)
    assert any("NVLink may be what sets the rate" in note for note in outcome.notes)


def test_a_ring_far_below_nvlink_shows_the_network(tmp_path):
    slow = tmp_path / "all_reduce.txt"
    slow.write_text(nccl_text("all_reduce", 2, (60e-6, 40e9, 1e-9), 9))
    found = calibrate(H800, Inputs([slow])).overlay["calibration"]["network"]
    assert found["ring"] == pytest.approx(40 / (0.9 * 50 * 8), rel=0.05)


def test_gemms_take_their_true_time(cluster):
    shapes = GemmTable(np.array([4096.0]), np.array([8192.0]), np.array([8192.0]), np.ones(1))
    before, after = (gemm_seconds(gpu, constants_of(gpu.curves.gemm), shapes)[0] for gpu in (H800, cluster))
    assert after / before == pytest.approx(1 / GEMM["eff_compute"], rel=0.02)
    assert cluster.sustained.fp8_speedup == pytest.approx(1.8, rel=0.02)


def test_left_out_points_are_predicted_far_better_than_by_the_catalogue(outcome):
    for fit in outcome.fits:
        if fit.left_out is not None:
            assert fit.after <= fit.left_out < fit.before / 3, fit.what


def test_warm_up_and_a_straggler_do_not_count():
    times = read_step_log(DATA / "train.log", 512)
    assert times.seconds == pytest.approx(WARM, rel=0.01)
    assert (times.dropped, times.steps) == (6, 24)
    assert times.low < times.seconds < times.high


def test_one_step_pulls_the_factors_part_of_the_way(outcome, cluster):
    factors, fit = outcome.overlay["calibration"], fit_of(outcome, "steps")
    assert fit.left_out is None
    assert all(0.8 < factors[name] < 1 for name in priors().names)
    assert 0 < fit.after < fit.before
    (described,) = read_runs(RUN)
    curves = cluster.model_copy(
        update={"calibration": cluster.calibration.model_copy(update=dict.fromkeys(priors().names, 1.0))}
    )
    without, with_it = (predicted_seconds(described, gpu) for gpu in (curves, cluster))
    assert without < with_it < WARM


# Fits: properties --------------------------------------------------------------------------------------

SENT = 2.0 ** np.arange(10, 33)
KNOWN = known_curve(H800, "all_gather", 8)


@given(st.floats(0.3, 3), st.floats(0.3, 3), st.floats(0.0, 3))
def test_an_exact_curve_is_found_from_anywhere(alpha, bandwidth, root):
    true = KNOWN * np.array([alpha, bandwidth, root])
    found = fit_collective(SENT, collective_seconds(true, SENT), KNOWN)
    assert np.all(found >= 0)
    np.testing.assert_allclose(collective_seconds(found, SENT), collective_seconds(true, SENT), rtol=0.02)


def test_an_outlier_hardly_moves_a_curve():
    seconds = collective_seconds(KNOWN * 1.2, SENT)
    seconds[12] *= 4
    found = collective_seconds(fit_collective(SENT, seconds, KNOWN), SENT)
    kept = np.arange(len(SENT)) != 12
    np.testing.assert_allclose(found[kept], seconds[kept], rtol=0.05)


def test_two_sizes_leave_what_they_cannot_say_to_the_catalogue():
    sent = np.array([1e9, 4e9])
    alpha, bandwidth, _ = fit_collective(sent, collective_seconds(KNOWN, sent) * 1.25, KNOWN)
    assert alpha == pytest.approx(KNOWN[0], rel=0.01)
    assert bandwidth == pytest.approx(KNOWN[1] / 1.25, rel=0.05)


@given(
    st.lists(st.floats(-3, 3), min_size=12, max_size=12), st.lists(st.floats(0, 2), min_size=3, max_size=3)
)
def test_nonnegative_least_squares_is_no_worse_than_any_other_nonnegative_point(numbers, other):
    rows, wanted = np.array(numbers[:9]).reshape(3, 3), np.array(numbers[9:])
    found = nonnegative(rows, wanted, np.ones(3))
    assert np.all(found >= 0)
    best, rival = (np.sum((rows @ x - wanted) ** 2) for x in (found, np.array(other)))
    assert best <= rival + 1e-6


def test_few_gemms_stay_near_the_catalogue():
    """Eight shapes that are 30 % slow: the rate follows, launch cost and tile effects do not run away."""
    n = np.array([1024.0, 2048, 4096, 8192] * 2)
    table = GemmTable(np.full(8, 4096.0), n, np.full(8, 4096.0), np.ones(8))
    known = constants_of(H800.curves.gemm)
    slow = gemm_seconds(H800, known, table) * 1.3
    found = fit_gemm(H800, replace(table, seconds=slow)) / known
    assert 0.7 < found[0] < 0.85
    assert np.all((found[2:] > 0.3) & (found[2:] < 3))


@given(st.floats(-0.3, 0.3), st.floats(0.1, 1.0), st.floats(0.0, 1.0))
def test_a_factor_never_overshoots_a_step(error, compute, communication):
    slopes = -np.array([[1.0, compute, communication]])
    x = fit_factors(np.array([error]), slopes, priors())
    left = error + (slopes @ x)[0]
    assert abs(left) <= abs(error) + 1e-12
    assert left * error >= 0
    assert abs(x[0]) >= abs(x[1])  # what may be all of the step is, before it is compute alone


def test_more_steps_that_agree_shrink_less():
    known = Priors(("compute",), np.array([0.05]), 0.05, 1.0)
    one, many = (abs(fit_factors(np.full(n, 0.04), np.full((n, 1), -0.8), known)[0]) for n in (1, 8))
    assert one < many < 0.05


def test_factors_of_one_change_nothing_and_faster_links_are_never_slower():
    (described,) = read_runs(RUN)
    usual = estimate(described.run, described.layers).step_time

    def step(**factors):
        gpu = H800.model_copy(update={"calibration": Calibration(source="test", **factors)})
        changed = replace(described.run, gpu=gpu, stack=calibrated_stack(described.run.stack, gpu))
        return estimate(changed, described.layers).step_time

    assert step() == pytest.approx(usual, rel=1e-12)
    twice = LinkFactors(ring=2.0, all_to_all=2.0, point_to_point=2.0)
    for better in (
        {"step": 1.1},
        {"compute": 1.1},
        {"communication": 1.1},
        {"nvlink": twice},
        {"network": twice},
    ):
        assert step(**better) <= usual
    assert step(compute=0.9) > usual
    assert step(step=1.1) == pytest.approx(usual / 1.1, rel=0.01)
    assert step(communication=0.8) > usual


# Files that calibrate writes are files that others read ------------------------------------------------


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("calibrate") / "my_cluster.yaml"
    nccl = [part for file in sorted(DATA.glob("*.txt")) for part in ("--nccl", file)]
    result = run(
        "--gpu",
        "h800",
        *nccl,
        "--gemm",
        DATA / "gemm.csv",
        "--steps",
        DATA / "train.log",
        "--run",
        RUN,
        "-o",
        path,
    )
    assert result.exit_code == 0, result.output
    return path, result


def test_the_tables_name_what_is_slow(written):
    shown = written[1].stdout
    for text in (
        "all to all, 16 GPUs, 2 nodes",
        "51% slower",
        "GEMM, BF16",
        "left out",
        "step of llama-13b-256",
    ):
        assert text in shown


def test_a_problem_takes_the_file_and_keeps_its_content(written):
    problem = load_problem(EXAMPLE, [("hardware.0.calibration", str(written[0]))])
    gpu, usual = problem.hardware[0].accelerator, problem.hardware[0].gpu.accelerator
    assert gpu.curves.gemm.eff_compute < usual.curves.gemm.eff_compute
    assert any("as its cluster was measured" in note for note in problem.assumptions)
    assert problem.problem_hash != load_problem(EXAMPLE).problem_hash
    again = parse_problem(json.loads(json.dumps(problem.as_written())))
    assert again.hardware[0].accelerator == gpu
    assert again.problem_hash == problem.problem_hash


def test_a_run_takes_the_file_from_its_folder(written):
    path, _ = written
    facts = yaml.safe_load(RUN.read_text())
    usual = describe(facts)
    slow = describe(facts | {"calibration": path.name}, "x", path.parent)
    assert estimated(slow).step_time > 1.05 * estimated(usual).step_time
    refused = describe(facts | {"calibration": "nowhere.yaml"}, "x", path.parent)
    assert "nowhere.yaml" in refused.error


def test_json_and_yaml_hold_the_same_calibration(written):
    args = ("--gpu", "H800", "--nccl", DATA / "all_reduce.txt")
    as_json = json.loads(run(*args, "-f", "json").stdout)["calibration"]
    as_yaml = yaml.safe_load(run(*args, "-f", "yaml").stdout)
    assert as_json["calibration"] == as_yaml["calibration"]
    assert as_yaml["gpu"] == "H800"


def test_a_table_of_steps_is_as_good_as_a_log(tmp_path):
    (tmp_path / "run.yaml").write_text(RUN.read_text())
    (tmp_path / "steps.csv").write_text(f"run,step_time_ms\nrun.yaml,{WARM * 1e3}\nrun.yaml,{WARM * 1010}\n")
    tokens = 512 * 4096 / 256 / WARM
    (tmp_path / "rates.csv").write_text(f"run,tokens_per_s_per_gpu\nrun.yaml#llama-13b-256,{tokens}\n")
    by_time, by_rate = (
        calibrate(H800, Inputs(steps=[tmp_path / name])).overlay["calibration"]
        for name in ("steps.csv", "rates.csv")
    )
    assert by_time["compute"] == pytest.approx(by_rate["compute"], rel=0.01)
    assert by_time["communication"] == pytest.approx(by_rate["communication"], rel=0.01)


def test_another_line_rate_is_what_factors_are_relative_to(tmp_path):
    files = ("--nccl", DATA / "sendrecv_2nodes.txt")
    usual, half = (
        yaml.safe_load(run("--gpu", "H800", *files, *more, "-f", "yaml").stdout)
        for more in ((), ("--network", "200 Gbit/s"))
    )
    of = [each["calibration"]["network"]["point_to_point"] for each in (usual, half)]
    assert of[1] == pytest.approx(2 * of[0], rel=1e-3)
    assert half["network"]["nic"] == 25e9
    file = tmp_path / "half.yaml"
    file.write_text(yaml.safe_dump(half))
    pool = {"gpu": "H800", "nodes": 4, "network": "50 GB/s", "calibration": str(file)}
    with pytest.raises(ValueError, match="calibration was made for"):
        Pool.model_validate(pool)


# Formats -----------------------------------------------------------------------------------------------


def test_tagged_output_and_log_lines_between_are_read(tmp_path):
    text = "\n".join(f"[1,0]<stdout>:{line}" for line in files()["all_reduce.txt"].splitlines())
    noisy = text.replace("[1,0]<stdout>:#\n", "node:1:2 [0] NCCL INFO comm 0x55 rank 0 nranks 8\n", 1)
    (tmp_path / "a.txt").write_text(noisy)
    (plain,), (tagged,) = read_nccl_tests(DATA / "all_reduce.txt"), read_nccl_tests(tmp_path / "a.txt")
    assert (tagged.sent, tagged.seconds, tagged.ranks) == (plain.sent, plain.seconds, 8)


def test_an_old_version_without_root_and_name_is_read_by_its_file_name(tmp_path):
    """Before 2.10 the table had no root column and an `error` of rounding; no line named the program."""
    lines = []
    for line in files()["all_gather.txt"].splitlines():
        if "perf" in line or "nccl-tests" in line:
            continue
        cells = line.split()
        if len(cells) == 13 and cells[0].isdigit():
            del cells[4]
            cells[7] = cells[11] = "5e-07"
            line = "  ".join(cells)
        lines.append(line.replace("  redop    root", "").replace("#wrong", " error"))
    (tmp_path / "allgather_h800.log").write_text("\n".join(lines))
    (old,), (new,) = (
        read_nccl_tests(tmp_path / "allgather_h800.log"),
        read_nccl_tests(DATA / "all_gather.txt"),
    )
    assert (old.op, old.sent) == ("all_gather", new.sent)
    np.testing.assert_allclose(old.seconds, new.seconds)


def test_several_tables_in_one_file_are_several_runs(tmp_path):
    both = files()["all_reduce.txt"] + files()["alltoall_2nodes.txt"]
    (tmp_path / "all.txt").write_text(both)
    assert [(r.op, r.ranks, r.nodes) for r in read_nccl_tests(tmp_path / "all.txt")] == [
        ("all_reduce", 8, 1),
        ("all_to_all", 16, 2),
    ]


def test_a_long_log_is_read(tmp_path):
    chatter = (
        "[rank3] some line that a long run prints again and again, of about a hundred characters in all\n"
    )
    (tmp_path / "long.log").write_text(chatter * 60_000 + log_text())
    assert read_step_log(tmp_path / "long.log", 512).seconds == pytest.approx(WARM, rel=0.01)


def test_a_ramp_up_of_the_batch_does_not_count(tmp_path):
    (tmp_path / "ramp.log").write_text(log_text(9.0, batch=256) + log_text(WARM, batch=512))
    assert read_step_log(tmp_path / "ramp.log", 512).seconds == pytest.approx(WARM, rel=0.01)


# Bad input: exit 2, one message with file and line, nothing written ------------------------------------

REDUCE = files()["all_reduce.txt"]
ROW = next(n for n, line in enumerate(REDUCE.splitlines(), 1) if line.startswith("     1048576"))
GOOD = REDUCE.splitlines()[ROW - 1]


def changed(line: str) -> str:
    return REDUCE.replace(GOOD, line)


def mixed() -> str:
    return REDUCE.replace("[0000:db:00] NVIDIA H800", "[0000:db:00] NVIDIA H20")


NCCL = {
    "wrong values": (changed(f"{GOOD[:-2]} 3"), [f"bad.txt:{ROW}", "3 wrong values"]),
    "out of bounds": (REDUCE.replace("values : 0 OK", "values : 12 FAILED"), ["12 FAILED", "without errors"]),
    "failure": (
        REDUCE + "gpu-node-017: Test NCCL failure common.cu:958 'unhandled system error'\n",
        ["Test NCCL failure", f"bad.txt:{len(REDUCE.splitlines()) + 1}"],
    ),
    "mixed GPUs": (mixed(), ["mixes GPUs", "NVIDIA H20"]),
    "other GPU": (REDUCE.replace("NVIDIA H800", "NVIDIA A100-SXM4-80GB"), ["A100", "H800, the --gpu"]),
    "not a time": (changed(GOOD.replace(GOOD.split()[5], "nan")), [f"bad.txt:{ROW}", "above 0"]),
    "inconsistent": (changed(GOOD.replace(GOOD.split()[6], "99.99")), [f"bad.txt:{ROW}", "algbw is 99.99"]),
    "no table": ("hello\n", ["no table", "all_reduce_perf"]),
    "no devices": (
        "\n".join(line for line in REDUCE.splitlines() if "Rank" not in line),
        ["no lines `#  Rank"],
    ),
    "same rank twice": (REDUCE.replace("Rank  1 ", "Rank  0 "), ["rank 0 is there 2 times", "MPI=1"]),
    "another program": (
        REDUCE.replace("all_reduce_perf", "broadcast_perf"),
        ["broadcast_perf", "all_reduce_perf"],
    ),
    "uneven nodes": (REDUCE.replace("gpu-node-017", "other", 1), ["unevenly"]),
    "empty": ("", ["is empty"]),
}


@pytest.mark.parametrize(("text", "said"), NCCL.values(), ids=NCCL)
def test_nccl_output_that_is_no_measurement_is_refused(tmp_path, text, said):
    refused(tmp_path, "bad.txt", text, said, "--nccl")


HEAD = "m,n,k,dtype,time_us\n"
GEMMS = {
    "empty": ("", ["is empty"]),
    "no rows": (HEAD, ["a header and no rows"]),
    "no k": ("m,n,dtype,time_us\n1,2,bf16,3\n", ["bad.csv:1", "k: no such column"]),
    "no time": ("m,n,k,dtype\n1,2,3,bf16\n", ["no time and no tflops", "m, n, k, dtype"]),
    "text": (f"{HEAD}4096,4096,4096,bf16,fast\n", ["bad.csv:2", "time_us", "'fast'"]),
    "negative": (f"{HEAD}4096,4096,4096,bf16,100\n4096,4096,4096,bf16,-5\n", ["bad.csv:3", "'-5'"]),
    "infinite": (f"{HEAD}4096,4096,4096,bf16,inf\n", ["bad.csv:2", "above 0"]),
    "fraction": (f"{HEAD}4096.5,4096,4096,bf16,10\n", ["bad.csv:2", "whole number"]),
    "dtype": (f"{HEAD}4096,4096,4096,int4,10\n", ["bad.csv:2", "int4", "bf16, fp16 or fp8"]),
    "ragged": (f"{HEAD}4096,4096,4096,bf16\n", ["bad.csv:2", "4 cells"]),
    "faster than the chip": (f"{HEAD}8192,8192,8192,bf16,10\n", ["bad.csv:2", "TFLOP/s", "peak"]),
    "other GPU": ("gpu,m,n,k,time_us\nNVIDIA A100,4096,4096,4096,600\n", ["bad.csv:2", "A100"]),
}


@pytest.mark.parametrize(("text", "said"), GEMMS.values(), ids=GEMMS)
def test_a_gemm_table_that_is_none_is_refused(tmp_path, text, said):
    refused(tmp_path, "bad.csv", text, said, "--gemm")


LOGS = {
    "no steps": ("loading checkpoint ...\n", ["no step times", "elapsed time per iteration"]),
    "other batch": (log_text(batch=1024), ["global batch 1024", "512, as in the run"]),
    "nonsense": (
        log_text()
        .replace("2250", "nan")
        .replace("elapsed time per iteration (ms): 2", "elapsed time per iteration (ms): -2", 1),
        ["above 0", "bad.log:"],
    ),
    "empty": ("\n", ["is empty"]),
}


@pytest.mark.parametrize(("text", "said"), LOGS.values(), ids=LOGS)
def test_a_log_without_usable_steps_is_refused(tmp_path, text, said):
    refused(tmp_path, "bad.log", text, said, "--run", RUN, "--steps")


def refused(folder, name, text, said, *options):
    (folder / name).write_text(text)
    result = run("--gpu", "H800", "-o", folder / "out.yaml", *options, folder / name)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    for part in said:
        assert part in result.stderr
    assert not (folder / "out.yaml").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("--gpu", "H800"), ["nothing was measured"]),
        (("--gpu", "H80O", "--nccl", DATA / "all_reduce.txt"), ["--gpu", "did you mean 'H800'"]),
        (("--gpu", "H800", "--nccl", "nowhere.txt"), ["nowhere.txt", "no such file"]),
        (("--gpu", "H800", "--steps", DATA / "train.log"), ["1 logs and 0 runs"]),
        (("--gpu", "H100", "--steps", DATA / "train.log", "--run", RUN), ["H800", "H100, the --gpu"]),
        (
            ("--gpu", "H800", "--steps", DATA / "train.log", "--run", f"{RUN}#x"),
            ["no run 'x'", "llama-13b-256"],
        ),
        (("--gpu", "H800", "--nccl", DATA / "all_reduce.txt", "--network", "fast"), ["--network", "'fast'"]),
    ],
)
def test_options_that_do_not_fit_are_refused(args, said):
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    for part in said:
        assert part in result.stderr


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"calibration": {"source": "x"}}, "gpu: missing"),
        ({"gpu": "H20", "calibration": {"source": "x"}}, "accepted: H800"),
        ({"gpu": "H800", "calibration": {"source": "x"}, "memory": {}}, "memory: unknown key"),
        (
            {"gpu": "H800", "calibration": {"source": "x"}, "sustained": {"gemm": 1}},
            "sustained.gemm: unknown",
        ),
        ({"gpu": "H800", "calibration": {"source": "x", "compute": -1}}, "calibration.compute"),
    ],
)
def test_a_calibration_that_is_none_is_refused(content, said):
    with pytest.raises(HardwareFileError, match=said):
        calibrated_accelerator(H800, content, "mine.yaml")


# A plan on a calibrated cluster -------------------------------------------------------------------------


def test_the_planner_and_its_validator_price_a_calibrated_cluster_alike(cluster, written):
    pool = {"gpu": "H800", "nodes": 16, "price": "2 USD/gpu-hour"}
    search = {"tp": [4], "pp": [4], "micro_batch": [1]}
    settings = [("limits", {"deadline": "3000 days"}), ("search", search), ("scenarios", {})]
    calibrated, usual = (
        load_problem(EXAMPLE, [("hardware", [pool | more]), *settings])
        for more in ({"calibration": str(written[0])}, {})
    )
    slow, fast = (solve(problem) for problem in (calibrated, usual))
    assert violations(calibrated, slow.plans[0]) == []
    assert slow.plans[0].estimate.days > 1.05 * fast.plans[0].estimate.days
    assert any("as its cluster was measured" in note for note in slow.notes)


@pytest.mark.slow
def test_steps_of_a_source_lower_the_errors_of_its_other_runs():
    """Published runs, each source left out of the fit of the profiles: where the owner of a new cluster stands."""
    known = priors()
    found = score_calibration.clusters(known)
    assert sum(len(each.groups) for each in found) > 800
    all_runs: list[float] = []
    for steps in (1, 2, 3):
        pairs = [
            score_calibration.drawn(each, each.left_out, steps, 30, known)
            for each in found
            if len(each.groups) > steps
        ]
        before, after = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        assert np.median(after) < np.median(before)
        medians = np.array([[np.median(side) for side in pair] for pair in pairs if len(pair[0])])
        assert medians[:, 1].mean() < medians[:, 0].mean()
        all_runs.append(float(np.median(after)))
    assert all_runs == sorted(all_runs, reverse=True), "more steps help more"
