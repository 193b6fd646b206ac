"""Claims about the hardware catalogue: facts are physically possible, look-ups and overlays say what is wrong."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import hardware
from hardware import catalogue
from hardware.accelerator import Accelerator, GemmCurve
from hardware.catalogue import (
    HardwareFileError,
    UnknownAccelerator,
    accelerator_names,
    load_accelerator,
    load_overlay,
    overlay,
)

DATA = Path(hardware.__file__).parent / "data"
ALL = accelerator_names()
HOPPER_PART = """
name: H100-big
based_on: h100
memory: {nominal: 160.0e+9, driver: 1.6e+11}
"""


@pytest.fixture(params=ALL)
def gpu(request: pytest.FixtureRequest) -> Accelerator:
    return load_accelerator(request.param)


def gemm_seconds(gpu: Accelerator, m: int, n: int, k: int) -> float:
    """The formula of GemmCurve, written down a second time, for 256x128 tiles."""
    curve: GemmCurve = gpu.curves.gemm
    waves = math.ceil(math.ceil(m / 256) * math.ceil(n / 128) / gpu.sm_count)
    flops = 2.0 * m * n * k
    rate = curve.eff_compute * gpu.peak_flops["bf16"] / gpu.sm_count
    droop = 1 + curve.droop * max(0.0, math.log10(flops / curve.droop_from))
    compute = waves * 2.0 * 256 * 128 * (k + curve.k0) / rate * droop
    moved = 2.0 * (m * k + k * n + m * n) / (curve.eff_memory * gpu.memory.bandwidth)
    return curve.t0 + max(compute, moved)


# Facts ------------------------------------------------------------------------------------------


def test_driver_memory_is_the_nominal_capacity_counted_in_binary_at_most(gpu: Accelerator) -> None:
    assert 0.9 * gpu.memory.nominal <= gpu.memory.driver <= 1.08 * gpu.memory.nominal


def test_peaks_are_dense(gpu: Accelerator) -> None:
    """A sparse figure is twice the dense one and would need clocks that no GPU has."""
    flops_per_cycle = {"ampere": 2048, "ada": 1024, "hopper": 4096, "blackwell": 8192}[gpu.generation]
    assert gpu.peak_flops["bf16"] <= flops_per_cycle * gpu.sm_count * 2.55e9
    assert gpu.peak_flops["fp16"] == gpu.peak_flops["bf16"]


def test_eight_bit_doubles_sixteen_bit(gpu: Accelerator) -> None:
    if gpu.generation == "ampere":
        assert "fp8" not in gpu.peak_flops
        assert gpu.sustained.fp8_speedup is None
        return
    assert gpu.peak_flops["fp8"] == pytest.approx(2 * gpu.peak_flops["bf16"], rel=0.02)
    assert gpu.sustained.fp8_speedup is not None
    assert 1.5 <= gpu.sustained.fp8_speedup <= 2


def test_only_blackwell_has_four_bit(gpu: Accelerator) -> None:
    blackwell = gpu.generation == "blackwell"
    assert ("nvfp4" in gpu.peak_flops) == blackwell == (gpu.sustained.nvfp4_speedup is not None)


def test_sustained_gemm_stays_below_peak(gpu: Accelerator) -> None:
    share = gpu.curves.gemm.eff_compute * gpu.sustained.gemm
    assert 0.5 < share < 0.9
    for precision, speedup in (("fp8", gpu.sustained.fp8_speedup), ("nvfp4", gpu.sustained.nvfp4_speedup)):
        if speedup is not None:
            assert share * speedup * gpu.peak_flops["bf16"] < gpu.peak_flops[precision]  # type: ignore[index]


def test_sustained_attention_stays_below_peak_and_backward_is_slower(gpu: Accelerator) -> None:
    assert gpu.sustained.attention_backward < gpu.sustained.attention_forward <= 1
    assert all(0.3 < curve.eff < 1 for curve in gpu.curves.attention.values())
    assert set(gpu.curves.attention) == {64, 128}


def test_prices_are_bands_and_commitment_is_cheaper(gpu: Accelerator) -> None:
    prices = gpu.prices
    bands = [band for band in (prices.on_demand, prices.reserved, prices.spot) if band is not None]
    assert all(band.low <= band.typical <= band.high for band in bands)
    for dear, cheap in itertools.pairwise(bands):
        assert cheap.typical < dear.typical
        assert cheap.low <= dear.low
        assert cheap.high <= dear.high


def test_networks_are_slower_than_the_scale_up_link_of_data_centre_parts(gpu: Accelerator) -> None:
    per_gpu = gpu.network.nics_per_node * gpu.network.nic / gpu.gpus_per_node
    assert per_gpu <= gpu.link.one_way / 4 or gpu.name == "L40S"
    assert gpu.link.domain % gpu.gpus_per_node == 0


def test_h800_is_an_h100_with_eight_of_its_eighteen_links() -> None:
    h800, h100 = load_accelerator("H800"), load_accelerator("H100")
    assert 2 * h800.link.one_way == 400e9
    assert 2 * h100.link.one_way == 900e9
    assert h800.peak_flops == h100.peak_flops
    assert h800.curves == h100.curves
    # fewer links are better filled, but never beyond what they carry
    assert 400 / 900 <= h800.link.bandwidth_scale < 0.5
    fastest = max(by_ranks[8].bandwidth for by_ranks in h800.curves.collectives.values())
    assert fastest * h800.link.bandwidth_scale < 400e9


def test_h20_computes_a_seventh_of_an_h800_and_reads_memory_faster() -> None:
    h20, h800 = load_accelerator("H20"), load_accelerator("H800")
    assert 6 < h800.peak_flops["bf16"] / h20.peak_flops["bf16"] < 7
    assert h20.memory.bandwidth > h800.memory.bandwidth


def test_a800_and_a100_differ_in_links_and_price_only() -> None:
    a800, a100 = load_accelerator("A800"), load_accelerator("A100")
    assert (a800.sm_count, a800.peak_flops, a800.memory) == (a100.sm_count, a100.peak_flops, a100.memory)
    assert a800.curves == a100.curves
    assert a800.link.one_way == pytest.approx(a100.link.one_way * a800.link.bandwidth_scale, rel=0.01)


def test_every_fact_has_a_source(gpu: Accelerator) -> None:
    curves = [gpu.curves.gemm, *gpu.curves.attention.values()]
    curves += [curve for by_ranks in gpu.curves.collectives.values() for curve in by_ranks.values()]
    assert all(len(text) > 20 for text in (gpu.prices.source, gpu.sustained.source, *gpu.sources))
    assert all(len(curve.source) > 20 for curve in curves)


# Curves -----------------------------------------------------------------------------------------


def test_large_gemms_take_flops_over_the_sustained_rate(gpu: Accelerator) -> None:
    m, n, k = 256 * 8, 128 * gpu.sm_count, 16384  # whole waves: no quantisation
    curve = gpu.curves.gemm
    flops = 2.0 * m * n * k
    droop = 1 + curve.droop * max(0.0, math.log10(flops / curve.droop_from))
    expected = flops / (gpu.peak_flops["bf16"] * curve.eff_compute) * droop
    assert gemm_seconds(gpu, m, n, k) == pytest.approx(expected, rel=0.03)


def test_gemm_time_grows_with_every_dimension(gpu: Accelerator) -> None:
    sizes = [256 * 2**i for i in range(8)]
    for shape in (lambda s: (s, 4096, 4096), lambda s: (4096, s, 4096), lambda s: (4096, 4096, s)):
        times = [gemm_seconds(gpu, *shape(size)) for size in sizes]
        assert times == sorted(times)


def test_collectives_never_beat_their_link(gpu: Accelerator) -> None:
    """All-reduce may: NVSwitch reduces in flight, so that bus bandwidth exceeds the link by up to a quarter."""
    for operation, by_ranks in gpu.curves.collectives.items():
        limit = 1.25 if operation == "all_reduce" else 1.1
        for ranks, curve in by_ranks.items():
            assert curve.bandwidth * gpu.link.bandwidth_scale <= limit * gpu.link.one_way, (operation, ranks)
            assert curve.root > 0
            assert 1e-6 < curve.alpha < 50e-6


def test_all_operations_are_known_for_two_four_and_eight_ranks(gpu: Accelerator) -> None:
    assert set(gpu.curves.collectives) == {"all_gather", "reduce_scatter", "all_reduce", "all_to_all"}
    assert all(set(by_ranks) == {2, 4, 8} for by_ranks in gpu.curves.collectives.values())


# Look-up ----------------------------------------------------------------------------------------


def test_index_says_what_the_files_say() -> None:
    index = yaml.safe_load((DATA / "index.yaml").read_text())
    files = {path.stem for path in DATA.glob("*.yaml")} - {"index"}
    assert {name.lower() for name in index} == files
    for name, aliases in index.items():
        facts = yaml.safe_load((DATA / f"{name.lower()}.yaml").read_text())
        assert facts["name"] == name
        assert facts["aliases"] == aliases


def test_no_spelling_means_two_gpus() -> None:
    index = yaml.safe_load((DATA / "index.yaml").read_text())
    spellings = [spelling.upper() for name, aliases in index.items() for spelling in (name, *aliases)]
    assert len(spellings) == len(set(spellings))


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("h800", "H800"),
        ("H800-SXM", "H800"),
        ("NVIDIA H800 SXM5 80GB", "H800"),
        ("A100", "A100-80"),
        ("a100_80gb", "A100-80"),
        ("A100-SXM4-40GB", "A100-40"),
        ("H100-SXM5-80GB", "H100"),
        ("H20-96GB", "H20"),
        ("H200-SXM-141GB", "H200"),
        ("gb200-nvl72", "GB200"),
    ],
)
def test_usual_spellings_are_understood(spelling: str, name: str) -> None:
    assert load_accelerator(spelling).name == name


def test_a_typo_gets_the_nearest_names_and_the_list() -> None:
    with pytest.raises(UnknownAccelerator, match=r"'H8O0'; did you mean H800") as caught:
        load_accelerator("H8O0")
    assert "GB300" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_nonsense_gets_the_list_without_a_guess() -> None:
    with pytest.raises(UnknownAccelerator) as caught:
        load_accelerator("toaster")
    assert "did you mean" not in str(caught.value)
    assert "L40S" in str(caught.value)


def test_a_pcie_card_is_not_taken_for_the_sxm_module() -> None:
    with pytest.raises(UnknownAccelerator, match="H100"):
        load_accelerator("H100-PCIe-80GB")


def test_looking_one_up_reads_its_own_files_only(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    original = Path.read_text

    def spy(path: Path, *args: str, **options: str) -> str:
        read.append(path.name)
        return original(path, *args, **options)

    for cached in (catalogue._index, catalogue._aliases, catalogue._kernel_facts, load_accelerator):  # pyright: ignore[reportPrivateUsage]
        cached.cache_clear()
    monkeypatch.setattr(Path, "read_text", spy)
    load_accelerator("H20-96GB")
    assert sorted(read) == ["H20.yaml", "h20.yaml", "index.yaml"]


def test_the_catalogue_imports_no_solver_and_no_numpy() -> None:
    code = "import sys, hardware.catalogue; print(any(m in sys.modules for m in ('numpy', 'ortools', 'planner')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


# Overlays ---------------------------------------------------------------------------------------


def test_an_overlay_changes_what_it_names_and_nothing_else() -> None:
    base = load_accelerator("H100")
    slower = overlay(base, {"link": {"one_way": 200e9}})
    assert slower.link.one_way == 200e9
    assert slower.link.domain == 8
    assert slower.model_copy(update={"link": base.link}) == base


def test_an_empty_overlay_is_the_base(gpu: Accelerator) -> None:
    assert overlay(gpu, {}) == gpu


def test_an_overlay_with_other_kernels_takes_their_curves() -> None:
    changed = overlay(load_accelerator("H100"), {"kernels": "H200", "curves": {"gemm": {"k0": 7}}})
    assert changed.curves.gemm.eff_compute == load_accelerator("H200").curves.gemm.eff_compute
    assert changed.curves.gemm.k0 == 7
    assert changed.curves.name == "H200"


def test_a_renamed_overlay_does_not_answer_to_the_old_aliases() -> None:
    assert overlay(load_accelerator("H100"), {"name": "H100-custom"}).aliases == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory": {"nominl": 1}}, r"memory\.nominl: unknown key; did you mean nominal\?"),
        ({"link": {"domain": -1}}, r"link\.domain: found -1; .*greater than 0"),
        ({"link": {"one_way": "fast"}}, r"link\.one_way: found 'fast'; .*valid number"),
        ({"kernels": "H900"}, r"kernels: found 'H900'; accepted: A100.*L40S"),
        (
            {"curves": {"attention": {128: {"ef": 1}}}},
            r"curves\.attention\.128\.ef: unknown key; did you mean eff",
        ),
        ({"prices": {"spot": {"lo": 1}}}, r"prices\.spot\.lo: unknown key; did you mean low"),
        ({"generation": "hoper"}, r"generation: found 'hoper'; .*'hopper'"),
    ],
)
def test_a_mistake_in_an_overlay_names_place_finding_and_remedy(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(HardwareFileError, match=message):
        overlay(load_accelerator("H100"), changes)


def test_a_user_file_builds_on_a_known_gpu(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HOPPER_PART)
    mine = load_overlay(file)
    assert (mine.name, mine.memory.nominal, mine.memory.bandwidth) == ("H100-big", 160e9, 3.35e12)


def test_a_whole_gpu_can_come_from_a_user_file(tmp_path: Path) -> None:
    facts = load_accelerator("B200").model_dump(mode="json") | {"name": "B200-own"}
    whole, by_name = tmp_path / "whole.yaml", tmp_path / "by_name.yaml"
    whole.write_text(yaml.safe_dump(facts))
    by_name.write_text(yaml.safe_dump({key: value for key, value in facts.items() if key != "curves"}))
    assert load_overlay(whole) == load_overlay(by_name) == overlay(load_accelerator("B200"), facts)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("based_on: H100\n", "name: missing"),
        ("name: x\nbased_on: H1000\n", r"based_on: unknown GPU 'H1000'; did you mean H100"),
        ("name: x\nvendor: y\n", "sm_count: missing"),
        ("- a\n", "found list; accepted: a mapping"),
        ("a: [\n", "not YAML: .*line"),
    ],
)
def test_a_broken_user_file_is_named_with_its_mistake(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(HardwareFileError, match=message) as caught:
        load_overlay(file)
    assert str(file) in str(caught.value)


def test_a_missing_user_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HardwareFileError, match=r"nowhere\.yaml: cannot be read"):
        load_overlay(tmp_path / "nowhere.yaml")
