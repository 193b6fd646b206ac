"""Launch files of others are read as they would be launched, and what is wrong with them is said."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from planner.cli.app import app
from planner.errors import InvalidInput, Refused
from planner.importers import Given, Launch, read_launches
from planner.importers.diagnose import diagnose
from planner.importers.megatron_model import moe_pattern, placed
from planner.importers.options import arities, parse
from planner.importers.report import report
from planner.importers.shell import Shell
from planner.importers.shell_expand import fields
from planner.runs import DescribedRun, RefusedRun, describe
from planner.solution import Decisions

ROOT = Path(__file__).parent.parent
MODEL = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 --group-query-attention
    --num-query-groups 8 --swiglu --normalization RMSNorm --disable-bias-linear --untie-embeddings-and-output-weights
    --position-embedding-type rope --vocab-size 128256 --hidden-dropout 0 --seq-length 8192
    --max-position-embeddings 8192"""
RUN = """--micro-batch-size 1 --global-batch-size 128 --bf16 --use-distributed-optimizer --overlap-grad-reduce
    --overlap-param-gather"""
EXPERTS = """--num-experts 8 --moe-router-topk 2 --moe-grouped-gemm --moe-token-dispatcher-type alltoall
    --moe-permute-fusion"""
DEEPSPEED = {
    "train_batch_size": 512,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": 4,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 3},
}
TORCHTITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 2
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
[activation_checkpoint]
mode = "selective"
selective_ac_option = "op"
[compile]
enable = true
"""


def command(
    *more: str, model: str = MODEL, run: str = RUN, ranks: str = "--nproc_per_node 8 --nnodes 2"
) -> str:
    return " ".join(f"torchrun {ranks} pretrain_gpt.py {model} {run} {' '.join(more)}".split())


def launch(tmp_path: Path, text: str, name: str = "train.sh", **facts: Any) -> Launch:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    (found,) = read_launches(file, Given(**({"gpu": "H100"} | facts)))
    return found


def described(found: Launch) -> DescribedRun:
    run = describe(found.written)
    assert isinstance(run, DescribedRun), run
    return run


def codes(found: Launch, level: str | None = None) -> list[str]:
    return [each.code for each in diagnose(found) if level in (None, each.level)]


def cli(*args: object) -> Any:
    return CliRunner().invoke(app, ["estimate", *[str(arg) for arg in args]], env={"COLUMNS": "160"})


# --- the shell ---------------------------------------------------------------------------------------


def commands(text: str, **outside: str) -> list[tuple[str, ...]]:
    shell = Shell()
    shell.script(text, outside)
    return [each.words for each in shell.commands]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("TP=8\nrun --tp $TP", ("run", "--tp", "8")),
        ("A=2; B=3\nrun $((A * $B + 1)) $(( (A+B)*2 ))", ("run", "7", "10")),
        (
            "ARGS=(--a 1 # one\n  --b 'two words'\n)\nrun ${ARGS[@]}",
            ("run", "--a", "1", "--b", "two", "words"),
        ),
        ("ARGS=(--b 'two words')\nrun \"${ARGS[@]}\"", ("run", "--b", "two words")),
        ('ARGS=(--a)\nARGS+=("--b 2")\nrun ${ARGS[@]}', ("run", "--a", "--b", "2")),
        ("O=' --x 1 \\\n  --y 2'\nrun $O --z", ("run", "--x", "1", "--y", "2", "--z")),
        ("run a \\\n  b", ("run", "a", "b")),
        ("run ${TP:-4} ${NONE:+--no} ${SIZE:=2}", ("run", "4", "2")),
        ("P=/a/b.json\nrun ${P##*/} ${P%.json}", ("run", "b.json", "/a/b")),
        ("F=1\nif [ $F -eq 1 ] && [[ $F == 1 ]]; then X=yes; else X=no; fi\nrun $X", ("run", "yes")),
        ("if [[ -z $NOTHING ]]; then\n X=unset\nfi\nrun $X", ("run", "unset")),
        ("M=70b\ncase $M in\n 7b|8b) L=32 ;;\n 70*) L=80 ;;\n *) L=1 ;;\nesac\nrun $L", ("run", "80")),
        ("f() {\n run --n $1\n}\nf 5", ("run", "--n", "5")),
        ('CMD="run --a 1"\neval $CMD', ("run", "--a", "1")),
        ('[ -n "$A" ] || B=2\nrun $B', ("run", "2")),
        ("export A=3 B=4\nrun $A$B 2>&1 | tee log", ("run", "34")),
        ("cat <<EOF > x\nrun nothing\nEOF\nrun --a", ("run", "--a")),
        ("run \"$@\" '' $EMPTY_ARRAY", ("run", "", "\0EMPTY_ARRAY\0")),
    ],
)
def test_a_script_is_read_as_the_shell_would_run_it(script: str, words: tuple[str, ...]) -> None:
    assert words in commands(script)


def test_a_loop_runs_its_body_for_each_word() -> None:
    assert commands("for N in 1 2; do\n run $N\ndone") == [("run", "1"), ("run", "2")]


def test_a_variable_from_outside_can_be_given() -> None:
    assert commands("run $NNODES", NNODES="4") == [("run", "4")]


def test_sh_c_is_followed_into_its_text() -> None:
    assert ("torchrun", "--nproc_per_node", "8") in commands(
        'C="torchrun --nproc_per_node 8"\nsrun sh -c "cd /x && $C"'
    )


@pytest.mark.parametrize(
    "script", ["run 'a", 'run "a', "if true; then run", "A=(1 2", "run ${A", "run $((1+"]
)
def test_a_broken_script_is_refused(script: str) -> None:
    with pytest.raises(Refused):
        Shell().script(script)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="abA=$(){}[]'\"\\ \n;&|<>#!*`-1+,", max_size=60))
def test_any_text_is_followed_or_refused(text: str) -> None:
    with suppress(Refused):
        Shell().script(text)


@given(st.lists(st.text(alphabet="abc-_.=/:123", min_size=1, max_size=8), max_size=5))
def test_quoted_array_items_come_out_as_they_went_in(items: list[str]) -> None:
    assert fields('"${A[@]}"', {"A": items}) == items


# --- options -----------------------------------------------------------------------------------------


def test_every_option_of_the_parser_is_known() -> None:
    assert len(arities()) > 870
    assert arities()["tensor-model-parallel-size"] == "values"
    assert arities()["recompute-modules"] == "lists"
    assert arities()["bf16"] == "flags"


def test_options_take_values_with_and_without_an_equals_sign() -> None:
    found = parse(
        ["--num-layers=32", "--recompute-modules", "mlp", "core_attn", "--bf16", "--window-size", "(127,0)"]
    )
    assert found.whole("num-layers") == 32
    assert found.all("recompute-modules") == ["mlp", "core_attn"]
    assert found.has("bf16")


@pytest.mark.parametrize(
    ("text", "layers", "expected"),
    [
        ("1", 4, (0, 1, True)),
        ("([0]*3+[1]*58)", 61, (3, 1, True)),
        ("([0]+[1])*4", 8, (0, 2, True)),
        ("2", 8, (0, 2, False)),
    ],
)
def test_moe_layers_are_placed(text: str, layers: int, expected: tuple[int, int, bool]) -> None:
    assert placed(moe_pattern(text, layers)) == expected


@pytest.mark.parametrize("text", ["([0]*3", "[2]*4", "[0]*10**9", "__import__('os')", "([1]*3)", "0"])
def test_a_pattern_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        moe_pattern(text, 4)


# --- Megatron-LM -------------------------------------------------------------------------------------


def test_a_command_line_becomes_the_run_it_starts(tmp_path: Path) -> None:
    found = launch(
        tmp_path,
        command(
            "--tensor-model-parallel-size 2 --sequence-parallel --pipeline-model-parallel-size 2 --tp-comm-overlap",
            "--num-layers-per-virtual-pipeline-stage 4 --recompute-granularity selective --recompute-modules mlp",
        ),
    )
    run = described(found).run
    assert (run.tp, run.pp, run.vpp, run.dp, run.zero) == (2, 2, 4, 4, 1)
    assert (run.num_microbatches, run.global_batch, run.seq_len) == (32, 128, 8192)
    assert run.recompute_modules == {"mlp"}
    assert run.stack.tensor_parallel.sequence_parallel
    a = run.architecture
    assert (a.layers, a.kv_heads, a.vocab, a.norm, a.gated_mlp, a.tied_embeddings) == (
        32,
        8,
        128256,
        "rms",
        True,
        False,
    )
    assert (a.qkv_bias, a.mlp_bias, a.learned_positions) == (False, False, 0)
    assert codes(found, "error") == []


def test_the_parsers_own_defaults_are_taken(tmp_path: Path) -> None:
    model = "--num-layers 24 --hidden-size 2048 --num-attention-heads 16 --seq-length 1024 --max-position-embeddings 1024"
    found = launch(
        tmp_path, command("--tokenizer-type GPT2BPETokenizer", model=model, run="--micro-batch-size 2 --bf16")
    )
    a = described(found).run.architecture
    assert (a.ffn, a.head_dim, a.kv_heads, a.gated_mlp, a.norm) == (8192, 128, 16, False, "layer")
    assert (a.tied_embeddings, a.learned_positions, a.mlp_bias, a.vocab) == (True, 1024, True, 50257)
    assert found.written["global_batch"] == 2 * 16
    assert any("global_batch" in text for text in found.warnings)
    assert described(found).run.zero == 0


def test_slurm_directives_count_the_gpus(tmp_path: Path) -> None:
    script = (
        f"#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\nsrun python {command().split(' ', 5)[5]}"
    )
    assert launch(tmp_path, script).written["num_gpus"] == 32


def test_a_wrapped_script_is_read(tmp_path: Path) -> None:
    script = f'#SBATCH --nodes=2\nCMD="{command(ranks="--nproc_per_node 8 --nnodes 2")}"\nsrun bash -c "cd /x; $CMD"\n'
    assert launch(tmp_path, script).written["num_gpus"] == 16


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 3", (3, 3)),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", (16, 16)),
        ("--recompute-activations", (0, 0)),
    ],
)
def test_recompute_is_read_by_stage(tmp_path: Path, options: str, expected: tuple[int, ...]) -> None:
    found = launch(tmp_path, command(options, "--pipeline-model-parallel-size 2"))
    assert described(found).recomputed == expected


@pytest.mark.parametrize(
    ("options", "layers"),
    [
        (
            "--pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 7 --decoder-last-pipeline-num-layers 7",
            [7, 9, 9, 7],
        ),
        (
            '--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout "Et*7|t*9|t*9|t*7L"',
            [7, 9, 9, 7],
        ),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", [8, 8, 8, 8]),
    ],
)
def test_uneven_stages_are_read(tmp_path: Path, options: str, layers: list[int]) -> None:
    assert list(described(launch(tmp_path, command(options))).layers) == layers


def test_embedding_and_loss_may_take_a_layers_place(tmp_path: Path) -> None:
    slots = "--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split"
    model = MODEL.replace("--num-layers 32", "--num-layers 30")
    found = launch(tmp_path, command(slots, "--pipeline-model-parallel-size 4", model=model))
    assert list(described(found).layers) == [7, 8, 8, 7]


def test_experts_and_their_groups_are_read(tmp_path: Path) -> None:
    found = launch(tmp_path, command(EXPERTS, "--expert-model-parallel-size 8 --moe-ffn-hidden-size 7168"))
    run = described(found).run
    assert run.architecture.moe is not None
    assert (run.architecture.moe.experts, run.architecture.moe.moe_ffn, run.ep, run.etp) == (8, 7168, 8, 1)


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ("--grad-reduce-in-bf16", "memory.gradient_bytes", 2),
        (
            "--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
            "memory.optimizer_bytes",
            8,
        ),
    ],
)
def test_precisions_of_states_change_the_bytes(
    tmp_path: Path, options: str, field: str, value: float
) -> None:
    part: Any = described(launch(tmp_path, command(options))).run.stack
    for name in field.split("."):
        part = getattr(part, name)
    assert part == value


def test_reduction_that_nothing_hides_takes_longer(tmp_path: Path) -> None:
    plain = RUN.replace("--overlap-grad-reduce", "").replace("--overlap-param-gather", "")
    hidden, shown = (report(launch(tmp_path, command(run=run))) for run in (RUN, plain))
    assert shown["breakdown_s"]["data_parallel"] > hidden["breakdown_s"]["data_parallel"]


# --- what is wrong -----------------------------------------------------------------------------------

WRONG = {
    "world": ("--tensor-model-parallel-size 3", "world"),
    "batch": ("--global-batch-size 100", "batch"),
    "heads": ("--num-attention-heads 12 --num-query-groups 4 --tensor-model-parallel-size 8", "heads"),
    "kv heads": (
        "--num-query-groups 8 --num-attention-heads 48 --hidden-size 6144 --tensor-model-parallel-size 16",
        "kv_heads_repeated",
    ),
    "layers": ("--num-layers 30 --pipeline-model-parallel-size 4", "layers_do_not_divide"),
    "virtual stages": (
        "--num-layers-per-virtual-pipeline-stage 5 --pipeline-model-parallel-size 2",
        "virtual_stages",
    ),
    "vpp alone": ("--num-virtual-stages-per-pipeline-rank 2", "vpp_without_pp"),
    "last stage alone": ("--decoder-last-pipeline-num-layers 1", "layers_dropped"),
    "two splits": (
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --num-layers-per-virtual-pipeline-stage 8",
        "split_twice",
    ),
    "bubble": ("--pipeline-model-parallel-size 8 --global-batch-size 16", "bubble"),
    "interleaved": (
        "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2 --global-batch-size 24",
        "microbatches_interleaved",
    ),
    "sequence": ("--context-parallel-size 2 --seq-length 8190", "sequence_cp"),
    "tp across nodes": ("--tensor-model-parallel-size 16 --sequence-parallel", "tp_across_nodes"),
    "selective method": (
        "--recompute-granularity selective --recompute-method uniform",
        "recompute_contradiction",
    ),
    "full alone": ("--recompute-granularity full", "recompute_contradiction"),
    "full and selective": (
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1 --recompute-activations",
        "recompute_contradiction",
    ),
    "method alone": ("--recompute-method uniform", "recompute_contradiction"),
    "missing module": (
        "--recompute-granularity selective --recompute-modules mla_up_proj",
        "recompute_contradiction",
    ),
    "fsdp2 with pp": ("--use-torch-fsdp2 --pipeline-model-parallel-size 2", "fsdp_combination"),
    "fsdp with pp": (
        "--use-megatron-fsdp --ckpt-format fsdp_dtensor --pipeline-model-parallel-size 2",
        "zero_with_pipeline",
    ),
    "experts without experts": ("--expert-model-parallel-size 2", "experts_missing"),
    "tp overlap": ("--tensor-model-parallel-size 2 --tp-comm-overlap", "tp_overlap"),
    "transfers in the open": (
        "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 --no-overlap-p2p-communication",
        "pp_overlap",
    ),
    "typo": ("--tensor-model-paralel-size 2", "unknown_option"),
    "old option": ("--checkpoint-activations", "removed_option"),
    "does not fit": (
        "--num-layers 160 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64",
        "does_not_fit",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_found(tmp_path: Path, what: str) -> None:
    options, code = WRONG[what]
    assert code in codes(launch(tmp_path, command(options)))


def test_a_sound_launch_has_no_errors_and_none_of_these_findings(tmp_path: Path) -> None:
    found = codes(
        launch(tmp_path, command("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap"))
    )
    assert not set(found) & {code for _, code in WRONG.values()}


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ("--expert-model-parallel-size 3", "experts"),
        ("--expert-model-parallel-size 8 --expert-tensor-parallel-size 4", "expert_product"),
        ("--tensor-model-parallel-size 2", "moe_needs_sequence_parallel"),
    ],
)
def test_what_is_wrong_with_experts_is_found(tmp_path: Path, options: str, code: str) -> None:
    assert code in codes(launch(tmp_path, command(EXPERTS, options)), "error")


HIDDEN = "--expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm"


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ("", ""),
        ("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2", ""),
        ("--recompute-granularity selective --recompute-modules moe_act", ""),
        ("--pipeline-model-parallel-size 2", "virtual stages"),
        (
            "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
            "no full recompute",
        ),
        ("--recompute-granularity selective --recompute-modules moe moe_act", "module moe"),
        ("--expert-model-parallel-size 1", "above 1"),
        ("--moe-token-dispatcher-type allgather", "alltoall or flex"),
        ("--moe-shared-expert-overlap", "no --moe-shared-expert-overlap"),
        ("--mtp-num-layers 2", "at most one layer"),
    ],
)
def test_what_overlap_of_the_experts_needs_is_found(tmp_path: Path, options: str, wrong: str) -> None:
    found = launch(tmp_path, command(EXPERTS, HIDDEN, options))
    texts = [each.text for each in diagnose(found) if each.code == "ep_overlap"]
    assert bool(texts) == bool(wrong)
    assert all(wrong in text for text in texts)
    assert found.written["ep_overlap"] is True
    assert described(found).run.stack.expert_parallel.overlap or wrong


def test_one_queue_leaves_nothing_to_overlap(tmp_path: Path) -> None:
    text = command(EXPERTS, HIDDEN, "--tensor-model-parallel-size 2 --sequence-parallel")
    assert "max_connections" not in codes(launch(tmp_path, f"export CUDA_DEVICE_MAX_CONNECTIONS=32\n{text}"))
    assert "max_connections" in codes(launch(tmp_path, f"export CUDA_DEVICE_MAX_CONNECTIONS=1\n{text}"))


def test_overlap_of_a_command_line_is_read(tmp_path: Path) -> None:
    pipeline = "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2"
    names = ("tp_overlap", "dp_overlap", "pp_overlap")

    def read(*options: str, run: str = RUN) -> tuple[Any, ...]:
        written = launch(tmp_path, command(*options, run=run)).written
        return tuple(written.get(name) for name in names)

    bare = RUN.replace("--overlap-grad-reduce", "").replace("--overlap-param-gather", "")
    assert read() == (False, True, None)
    assert read(pipeline, run=bare) == (False, False, True)
    assert read(pipeline, "--no-overlap-p2p-communication") == (False, True, False)
    assert read("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap") == (True, True, None)
    sharded = "--use-megatron-fsdp --ckpt-format fsdp_dtensor"
    assert read(sharded, run=bare) == (False, True, None)


@pytest.mark.parametrize(
    ("zero", "read"),
    [
        ({"stage": 2}, False),
        ({"stage": 3}, True),
        ({"stage": 2, "overlap_comm": True}, True),
        ({"stage": 3, "overlap_comm": False}, False),
        ({"stage": 2, "overlap_comm": "auto"}, False),
        ({"stage": 0, "overlap_comm": True}, None),
    ],
)
def test_overlap_of_a_deepspeed_json_is_read(zero: dict[str, Any], read: bool | None) -> None:
    from planner.importers.deepspeed import Json, overlap_of, sizes_of

    json = Json("ds.json", {"zero_optimization": zero})
    assert overlap_of(json, sizes_of(json)) is read


def test_a_finding_carries_its_numbers_and_a_way_out(tmp_path: Path) -> None:
    found = launch(tmp_path, command("--pipeline-model-parallel-size 8 --global-batch-size 16"))
    (finding,) = [each for each in diagnose(found) if each.code == "bubble"]
    m, pp = 8, 8
    assert finding.numbers["bubble"] == (pp - 1) / (m + pp - 1)
    needed = finding.numbers["needed"]
    assert (pp - 1) / (needed + pp - 1) <= 0.1 < (pp - 1) / (needed - 1 + pp - 1)
    assert str(int(needed)) in finding.fix


def test_what_would_make_it_fit_does_make_it_fit(tmp_path: Path) -> None:
    big = "--micro-batch-size 4 --tensor-model-parallel-size 2"
    found = launch(tmp_path, command(big))
    (finding,) = [each for each in diagnose(found) if each.code == "does_not_fit"]
    assert "full recompute" in finding.fix
    fixed = command(big, "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1")
    assert "does_not_fit" not in codes(launch(tmp_path, fixed))


@pytest.mark.parametrize(
    ("peak", "told"), [("1979e12", True), ("1979", True), ("989e12", False), ("989.4", False)]
)
def test_a_sparse_peak_is_told_from_the_dense_one(tmp_path: Path, peak: str, told: bool) -> None:
    found = launch(tmp_path, f"PEAK_FLOPS={peak}\n{command()}")
    assert ("sparse_peak" in codes(found)) == told


def test_measured_figures_are_held_against_the_prediction(tmp_path: Path) -> None:
    predicted = report(launch(tmp_path, command()))["step_time_s"]
    close, slow, odd = (
        codes(launch(tmp_path, command(), settings=(("measured.step_time_s", predicted * factor),)))
        for factor in (1.0, 2.0, 0.4)
    )
    assert "measured_apart" not in close
    assert "measured_apart" in slow
    assert "implausible_mfu" in odd


def test_needless_recompute_is_told_with_what_it_costs(tmp_path: Path) -> None:
    full = "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"
    found = launch(
        tmp_path, command(full, "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap")
    )
    (finding,) = [each for each in diagnose(found) if each.code == "recompute_not_needed"]
    without = report(
        launch(tmp_path, command("--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap"))
    )
    assert finding.numbers["step_time_s"] == pytest.approx(without["step_time_s"])


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("--is-hybrid-model", "--is-hybrid-model: Mamba"),
        ("--optimizer-cpu-offload", "host memory"),
        ("--optimizer sgd", "only Adam"),
        ("--cpu-offloading-num-layers 4", "host memory"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(tmp_path: Path, options: str, why: str) -> None:
    result = report(launch(tmp_path, command(options)))
    assert why in result["error"] + str(result["findings"])
    assert "step_time_s" not in result


def test_harmless_values_of_such_options_are_not_refused(tmp_path: Path) -> None:
    assert "error" not in report(launch(tmp_path, command("--optimizer adam --cpu-offloading-num-layers 0")))


# --- DeepSpeed and torchtitan ------------------------------------------------------------------------


def deepspeed(tmp_path: Path, changes: dict[str, Any], **facts: Any) -> Launch:
    given = {"gpu": "A100", "gpus": 64, "model": "llama-2-13b", "settings": (("seq_len", 4096),)} | facts
    return launch(tmp_path, json.dumps(DEEPSPEED | changes), "ds.json", **given)


def test_a_deepspeed_json_becomes_a_run(tmp_path: Path) -> None:
    run = described(deepspeed(tmp_path, {})).run
    assert (run.zero, run.micro_batch, run.num_microbatches, run.dp, run.stack.family) == (
        3,
        2,
        4,
        64,
        "deepspeed",
    )
    assert (run.architecture.name.lower().replace(" ", "-"), run.precision) == ("llama-2-13b", "bf16")


def test_a_missing_batch_follows_from_the_ranks(tmp_path: Path) -> None:
    assert deepspeed(tmp_path, {"train_batch_size": None}).written["global_batch"] == 2 * 4 * 64


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"train_batch_size": 500}, "batch_product"),
        ({"zero_optimization": {"stage": 2}, "pipeline": {"stages": 4}}, "zero_with_pipeline"),
        ({"zero_optimisation": {"stage": 2}}, "unknown_option"),
        ({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}, "not_modelled"),
        ({"bf16": {"enabled": False}}, "not_modelled"),
    ],
)
def test_what_is_wrong_with_a_deepspeed_json_is_found(
    tmp_path: Path, changes: dict[str, Any], code: str
) -> None:
    assert code in codes(deepspeed(tmp_path, changes))


def test_auto_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"micro_batch=\.\.\."):
        deepspeed(tmp_path, {"train_micro_batch_size_per_gpu": "auto"})


def test_a_torchtitan_toml_becomes_a_run(tmp_path: Path) -> None:
    run = described(launch(tmp_path, TORCHTITAN, "tt.toml", gpus=8)).run
    assert (run.dp, run.micro_batch, run.global_batch, run.zero, run.stack.name) == (
        8,
        2,
        16,
        3,
        "torchtitan-2025",
    )
    assert run.recompute_modules == {"per_op"}


def test_a_torchtitan_pipeline_splits_the_local_batch(tmp_path: Path) -> None:
    text = TORCHTITAN.replace("local_batch_size = 2", "local_batch_size = 16").replace(
        "[parallelism]",
        '[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = "Interleaved1F1B"',
    )
    run = described(launch(tmp_path, text, "tt.toml", gpus=8)).run
    assert (run.pp, run.vpp, run.micro_batch, run.num_microbatches, run.global_batch) == (2, 2, 1, 16, 64)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("data_parallel_shard_degree = -1", "data_parallel_shard_degree = 3", "world"),
        ("data_parallel_shard_degree = -1", "tensor_paralel_degree = 2", "unknown_option"),
        ("seq_len = 8192", "seq_len = 8192\nenable_cpu_offload = true", "not_modelled"),
    ],
)
def test_what_is_wrong_with_a_toml_is_found(tmp_path: Path, old: str, new: str, code: str) -> None:
    assert code in codes(launch(tmp_path, TORCHTITAN.replace(old, new), "tt.toml", gpus=8))


# --- the command, and bad input ----------------------------------------------------------------------


def test_the_command_prints_everything_as_json(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(command("--tensor-model-parallel-size 2"), encoding="utf-8")
    result = cli(file, "--gpu", "H100", "--format", "json", "--no-better")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    assert {
        "id",
        "step_time_s",
        "fits",
        "memory_gib",
        "breakdown_s",
        "warnings",
        "findings",
        "run",
        "framework",
    } <= set(row)
    assert all({"code", "level", "text", "fix", "numbers"} == set(finding) for finding in row["findings"])


def test_the_command_prints_a_page_for_people(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(command("--tensor-model-parallel-size 2"), encoding="utf-8")
    text = cli(file, "--gpu", "H100", "--no-better").stdout
    for word in (
        "16 x H100, TP2",
        "80 % between",
        "GiB on the fullest GPU",
        "Findings",
        "Assumed",
        "interconnect",
    ):
        assert word in text


def test_a_launch_that_cannot_start_exits_with_2_and_its_findings(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(command("--tensor-model-parallel-size 3"), encoding="utf-8")
    result = cli(file, "--gpu", "H100", "--format", "json", "--no-better")
    assert result.exit_code == 2
    (row,) = json.loads(result.stdout)
    assert "does not divide 16 GPUs" in row["error"]
    assert row["findings"][0]["code"] == "world"


BAD = {
    "truncated.json": ('{"train_batch_size": 512, ', "not valid JSON"),
    "list.json": ("[1]", "holds no object"),
    "model.json": ('{"hidden_size": 4096}', "--model"),
    "batch.json": ('{"train_batch_size": "many"}', "a whole number"),
    "other.toml": ("[tool.ruff]\nline-length = 110\n", "no torchtitan configuration"),
    "broken.toml": ("[model\n", "not valid TOML"),
    "flavor.toml": ('[model]\nname="llama3"\nflavor="9B"\n[training]\n', "llama3 8B"),
    "nothing.sh": ("#!/bin/bash\necho hello\n", "starts no training that is known"),
    "quote.sh": ("torchrun 'pretrain_gpt.py\n", "not closed"),
    "gpus.sh": (command(ranks="--nproc_per_node 8 --nnodes $NNODES"), "--var NNODES"),
    "vocab.sh": (
        command(model=MODEL.replace("--vocab-size 128256", "").replace("14336", "14000")),
        "model.vocab",
    ),
    "size.sh": (command("--num-layers many"), "a whole number"),
    "pattern.sh": (command(EXPERTS, "--moe-layer-freq ([0]*3)"), "--moe-layer-freq"),
    "empty.sh": ("", "is empty"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_one_message_and_exit_2(tmp_path: Path, name: str) -> None:
    text, said = BAD[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    result = cli(tmp_path / name, "--gpu", "H100")
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert name in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 4


def test_a_binary_file_and_a_missing_one_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_bytes(b"\x7fELF\x00\x01\xff")
    for name, said in (("a.sh", "is not text"), ("b.sh", "no such file")):
        result = cli(tmp_path / name, "--gpu", "H100")
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr


def test_a_missing_gpu_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.sh").write_text(command(), encoding="utf-8")
    result = cli(tmp_path / "a.sh")
    assert result.exit_code == 2
    assert "--gpu H100" in result.stderr


def test_options_for_launch_files_are_refused_with_a_runs_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("model: llama-2-7b\n", encoding="utf-8")
    result = cli(tmp_path / "a.yaml", "--gpu", "H100")
    assert result.exit_code == 2
    assert "--gpu" in result.stderr


# --- there and back ----------------------------------------------------------------------------------


def test_the_run_as_it_was_read_is_a_runs_file(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(command("--tensor-model-parallel-size 2 --sequence-parallel"), encoding="utf-8")
    (row,) = json.loads(cli(file, "--gpu", "H100", "--format", "json", "--no-better").stdout)
    runs = tmp_path / "run.yaml"
    runs.write_text(yaml.safe_dump(row["run"]), encoding="utf-8")
    (again,) = json.loads(cli(runs, "--format", "json").stdout)
    assert again["step_time_s"] == row["step_time_s"]
    assert again["memory_gib"] == row["memory_gib"]


def test_a_setting_of_the_profile_that_is_none_is_refused() -> None:
    run = {"model": "llama-2-7b", "gpu": "A100", "num_gpus": 8, "seq_len": 4096, "global_batch": 64}
    refused = describe(run | {"profile_settings": {"data_parallel.gradient_byte": 2}})
    assert isinstance(refused, RefusedRun)
    assert "did you mean 'gradient_bytes'" in refused.error


def test_a_better_plan_is_found_for_the_same_gpus(tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    text = command("--tensor-model-parallel-size 8 --sequence-parallel --pipeline-model-parallel-size 2")
    file.write_text(text, encoding="utf-8")
    result = cli(file, "--gpu", "H100", "--format", "json", "--time-limit", "20 s", "-q")
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    better = row["better"]
    assert better["status"] == "optimal"
    assert better["decisions"]["num_gpus"] == 16
    assert better["decisions"]["global_batch"] == 128
    assert better["step_time_s"] < row["step_time_s"]
    assert better["time_saved"] == pytest.approx(1 - better["step_time_s"] / row["step_time_s"])


LLAMA_JSON = ROOT / "tests" / "data" / "huggingface" / "llama-2-7b.json"


def deepspeed_better(folder: Path, batch: int) -> dict[str, object]:
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 4,
        "train_batch_size": batch,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": 3},
    }
    (folder / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    more = ("--gpu", "A100", "--gpus", "8", "--model", LLAMA_JSON, "-s", "seq_len=4096")
    result = cli(folder / "ds.json", *more, "--format", "json", "-q")
    (row,) = json.loads(result.stdout)
    return row["better"]


def test_a_better_plan_is_one_that_the_runs_software_can_launch(tmp_path: Path) -> None:
    """Hugging Face models under DeepSpeed are not split: Ulysses and pipelines are other code."""
    better = deepspeed_better(tmp_path, 32)
    decisions = Decisions.model_validate(better["decisions"])
    assert (decisions.tp, decisions.cp, decisions.pp, decisions.ep) == (1, 1, 1, 1)
    assert better["time_saved"] >= 0  # pyright: ignore[reportOperatorIssue]


def test_a_launch_that_stops_has_nothing_to_gain_over(tmp_path: Path) -> None:
    better = deepspeed_better(tmp_path, 48)
    assert better["text"] == "can be launched, which today's layout cannot"
    assert "time_saved" not in better


def test_that_there_is_no_plan_says_for_which_batch_and_what_is_in_the_way(tmp_path: Path) -> None:
    better = deepspeed_better(tmp_path, 36)
    assert better["status"] == "infeasible"
    assert str(better["text"]).startswith("no plan that can be launched has a batch of 36 on 8 GPUs")


# --- what can go wrong at the command line ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--micro-batch-size", "0"),
        ("--micro-batch-size", "-3"),
        ("--tensor-model-parallel-size", "0"),
        ("--num-layers", "99999999999999999999"),
        ("--num-layers", "20000"),
    ],
)
def test_sizes_that_no_run_has_are_refused(option: str, value: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=f"{option} '?{value}"):
        launch(tmp_path, command(option, value))


def test_brackets_without_end_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nested too deeply"):
        launch(tmp_path, "$(" * 50_000)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("tpp=4", "did you mean 'tp'?"),
        ("tp=abc", "-s tp: found 'abc'"),
        ("tp=0", "-s tp: found 0"),
        ("model=3", "-s model: found 3"),
        ("schedule=dualpip", "did you mean 'dualpipe'?"),
    ],
)
def test_settings_that_no_run_has_exit_2(setting: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "train.sh"
    file.write_text(command(), encoding="utf-8")
    result = CliRunner().invoke(app, ["estimate", str(file), "--gpu", "H100", "--no-better", "-s", setting])
    assert result.exit_code == 2, result.output
    assert said in result.stderr


def test_deepspeed_with_two_precisions_stops(tmp_path: Path) -> None:
    both = DEEPSPEED | {"fp16": {"enabled": True}}
    facts = {"gpus": 64, "model": "llama-3-8b", "settings": (("seq_len", 4096),)}
    assert "precision_twice" in codes(launch(tmp_path, json.dumps(both), "ds.json", **facts), "error")
    auto = DEEPSPEED | {"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}
    found = launch(tmp_path, json.dumps(auto), "ds.json", **facts)
    assert "precision_twice" not in codes(found)
    assert found.written["precision"] == "bf16"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("runs: []\n", "runs: holds no run"),
        ("model: llama-3-8b\ngpu: H100\nnum_gpus: 8\n", "seq_len: missing"),
        ("model: 3\ntp: abc\ngpu: H100\nnum_gpus: 8\nseq_len: 4096\nglobal_batch: 8\n", "model"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--better"]])
def test_runs_files_in_which_nothing_can_be_estimated_exit_2(
    text: str, said: str, more: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "runs.yaml"
    file.write_text(text, encoding="utf-8")
    result = CliRunner().invoke(app, ["estimate", str(file), "--quiet", *more], env={"COLUMNS": "200"})
    assert result.exit_code == 2, result.output
    assert said in result.output


def test_tensor_parallelism_across_nodes_is_a_note_where_less_of_it_is_slower(tmp_path: Path) -> None:
    split = "--tensor-model-parallel-size 16 --pipeline-model-parallel-size 8"
    model = MODEL.replace("--num-layers 32 --hidden-size 4096", "--num-layers 80 --hidden-size 8192")
    model = model.replace(
        "--ffn-hidden-size 14336 --num-attention-heads 32", "--ffn-hidden-size 28672 --num-attention-heads 64"
    )
    found = {}
    for batch in (8, 1024):
        run = RUN.replace("--global-batch-size 128", f"--global-batch-size {batch}")
        text = command(split, model=model, run=run, ranks="--nproc_per_node 8 --nnodes 16")
        (found[batch],) = [
            each for each in diagnose(launch(tmp_path, text)) if each.code == "tp_across_nodes"
        ]
    assert [found[batch].level for batch in (8, 1024)] == ["note", "warning"]
    assert "alone gains nothing" in found[8].fix
    assert "more)" in found[8].fix
    assert "less" in found[1024].fix
