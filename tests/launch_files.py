"""Reads launch files back, sharing nothing with the exporters: what a launcher would make of them."""

from __future__ import annotations

import argparse
import ast
import json
import re
import shlex
import sys
import tomllib
import types
from functools import cache
from math import prod
from pathlib import Path
from types import SimpleNamespace

import yaml

DATA = Path(__file__).parent / "data"
OPTIONS = json.loads((DATA / "megatron_options.json").read_text(encoding="utf-8"))["options"]
ARRAY = re.compile(r"^(\w+)=\($(.*?)^\)$", re.MULTILINE | re.DOTALL)


def arrays(script):
    """The words of each array of arguments."""
    return {name: shlex.split(body, comments=True) for name, body in ARRAY.findall(script)}


@cache
def megatron_parser():
    """Megatron-LM's own options: their names, how many words they take, and their choices."""
    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False, add_help=False)
    for name, kind in OPTIONS.items():
        what, choices = (kind, None) if isinstance(kind, str) else (kind[0], kind[1:])
        dest = name.removeprefix("--").replace("-", "_")
        if what == "flag":
            parser.add_argument(name, dest=dest, action="store_true")
        else:
            words = "+" if what == "values" else int(what) if what.isdigit() else None
            parser.add_argument(name, dest=dest, nargs=words, choices=choices)
    return parser


def megatron_options(script):
    """What Megatron-LM's parser makes of the script; the first array is torchrun's."""
    words = [w for name, each in arrays(script).items() if name != "TORCHRUN_ARGS" for w in each]
    parsed, unknown = megatron_parser().parse_known_args(words)
    assert unknown == []
    return parsed


def torchrun(script):
    """(nodes, GPUs of a node)."""
    words = arrays(script)["TORCHRUN_ARGS"]
    return int(words[words.index("--nnodes") + 1]), int(words[words.index("--nproc-per-node") + 1])


def unrolled(layout):
    """Stages of a pipeline layout, by the two rules of Megatron-Core's own parser."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda found: found[1] * int(found[2]), layout)
    return layout.split("|")


def megatron(files):
    """The plan that the command line describes."""
    script = files["launch.sh"]
    nodes, gpus = torchrun(script)
    o = megatron_options(script)
    tp, pp, cp = (
        int(getattr(o, f"{k}_parallel_size")) for k in ("tensor_model", "pipeline_model", "context")
    )
    dp, rest = divmod(nodes * gpus, tp * pp * cp)
    assert rest == 0
    assert (
        nodes * gpus % (pp * int(o.expert_model_parallel_size or 1) * int(o.expert_tensor_parallel_size or 1))
        == 0
    )
    stages = unrolled(o.pipeline_model_parallel_layout) if o.pipeline_model_parallel_layout else None
    vpp = len(stages) // pp if stages else int(o.num_virtual_stages_per_pipeline_rank or 1)
    layers = [s.count("t") for s in stages] if stages else [int(o.num_layers) // (pp * vpp)] * (pp * vpp)
    micro, batch = int(o.micro_batch_size), int(o.global_batch_size)
    assert batch % (dp * micro) == 0
    assert sum(layers) == int(o.num_layers)
    instances = int(o.num_distributed_optimizer_instances or 1)
    # The ranks of a node are neighbours: tp first, then cp and dp.
    assert instances == 1 or dp * cp * tp == instances * gpus
    zero = {None: int(o.use_distributed_optimizer), "optim_grads": 2, "optim_grads_params": 3}
    return {
        "world": nodes * gpus,
        "nodes": nodes,
        **{"tp": tp, "pp": pp, "cp": cp, "dp": dp, "vpp": vpp},
        "ep": int(o.expert_model_parallel_size or 1),
        "etp": int(o.expert_tensor_parallel_size or 1),
        "micro_batch": micro,
        "num_microbatches": batch // dp // micro,
        "global_batch": batch,
        "zero": zero[o.data_parallel_sharding_strategy if o.use_megatron_fsdp else None],
        "zero_scope": "full" if instances == 1 else "node",
        "seq_len": int(o.seq_length),
        "steps": int(o.train_iters),
        "sequence_parallel": o.sequence_parallel,
        "precision": "fp8" if o.fp8_format else "bf16" if o.bf16 else "fp32",
        "layers": layers,
        "recomputed": recomputed(o, layers),
        "modules": sorted(o.recompute_modules or []),
        "tp_overlap": o.tp_comm_overlap,
        "dp_overlap": o.overlap_grad_reduce,
        "pp_overlap": pp > 1 and vpp > 1 and not o.no_overlap_p2p_communication,
        "ep_overlap": o.overlap_moe_expert_parallel_comm,
    }


def recomputed(o, layers):
    """Layers of each virtual stage that full recompute covers."""
    if o.recompute_granularity != "full":
        return [0] * len(layers)
    number = int(o.recompute_num_layers)
    if o.recompute_method == "uniform":
        assert number == 1
        return list(layers)
    return [min(number, held) for held in layers]


def torchtitan(files):
    """The plan that the TOML describes; the recipe must say the same."""
    data = tomllib.loads(files["torchtitan_0.2.toml"])
    nodes, gpus = torchrun(files["launch.sh"])
    assert torchrun(files["launch_0.2.sh"]) == (nodes, gpus)
    p, t = data["parallelism"], data["training"]
    recipe_agrees(files["recipe.py"], data)
    sizes = {
        "tp": p["tensor_parallel_degree"],
        "pp": p["pipeline_parallel_degree"],
        "cp": p["context_parallel_degree"],
        "dp": p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"],
    }
    assert prod(sizes.values()) == nodes * gpus
    parts = p.get("module_fqns_per_model_part")
    micro = p.get("pipeline_parallel_microbatch_size", t["local_batch_size"])
    layers = [sum(name.startswith("layers.") for name in part) for part in parts] if parts else None
    vpp = len(parts) // sizes["pp"] if parts else 1
    if parts:
        names = [name for part in parts for name in part]
        count = sum(layers)
        assert names == ["tok_embeddings", *(f"layers.{i}" for i in range(count)), "norm", "output"]
        assert p["pipeline_parallel_schedule"] == ("Interleaved1F1B" if vpp > 1 else "1F1B")
    shards, scope = p["data_parallel_shard_degree"] * sizes["cp"], "full"
    if shards == 1:
        zero = 0
    else:
        if p["data_parallel_replicate_degree"] > 1:
            scope = "node"
            assert shards * sizes["tp"] == gpus
        zero = 3 if p["fsdp_reshard_after_forward"] == "always" else 1 if sizes["pp"] > 1 else 2
    return sizes | {
        "world": nodes * gpus,
        "nodes": nodes,
        "vpp": vpp,
        "ep": p["expert_parallel_degree"],
        "etp": p["expert_tensor_parallel_degree"],
        "micro_batch": micro,
        "num_microbatches": t["global_batch_size"] // sizes["dp"] // micro,
        "global_batch": t["global_batch_size"],
        "zero": zero,
        "zero_scope": scope,
        "seq_len": t["seq_len"],
        "steps": t["steps"],
        "layers": layers,
        "whole": data["activation_checkpoint"]["mode"] == "full",
        "tp_overlap": p["enable_async_tensor_parallel"],
        "pp_overlap": False,
        "ep_overlap": False,
    }


def recipe_agrees(text, data):
    """Each keyword of the recipe that the TOML has too has the same value."""
    calls = {
        node.func.id: {k.arg: ast.literal_eval(k.value) for k in node.keywords}
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") in ("TrainingConfig", "ParallelismConfig")
    }
    for name, section in (("TrainingConfig", "training"), ("ParallelismConfig", "parallelism")):
        recipe, old = calls[name], data[section]
        parts = "module_fqns_per_model_part"
        if parts in recipe:
            last = [*old[parts][-1][:-1], "lm_head"]
            assert recipe[parts] == [*old[parts][:-1], last]
        shared = set(recipe) & set(old) - {parts}
        assert len(shared) >= 4
        assert {key: recipe[key] for key in shared} == {key: old[key] for key in shared}


def words_of(script, *names):
    """Options with one value or none, by name."""
    words = [word for name, each in arrays(script).items() if not names or name in names for word in each]
    found = {}
    for i, word in enumerate(words):
        if word.startswith("--"):
            following = words[i + 1] if i + 1 < len(words) else "--"
            found[word] = True if following.startswith("--") else following
    return found


def deepspeed(files):
    """The plan that ds_config.json and the command line describe together."""
    config, script = json.loads(files["ds_config.json"]), files["launch.sh"]
    nodes, gpus = torchrun(script)
    options = words_of(script)
    split = "--tensor-model-parallel-size" in options
    tp = int(options.get("--tensor-model-parallel-size", 1))
    pp = int(options.get("--pipeline-model-parallel-size", 1))
    micro, number = config["train_micro_batch_size_per_gpu"], config["gradient_accumulation_steps"]
    assert config["train_batch_size"] == micro * number * (nodes * gpus // (tp * pp))
    if split:
        assert int(options["--micro-batch-size"]) == micro
        assert int(options["--global-batch-size"]) == config["train_batch_size"]
        assert int(options["--zero-stage"]) == config["zero_optimization"]["stage"]
        whole = options.get("--recompute-granularity") == "full"
    else:
        assert int(options["--per_device_train_batch_size"]) == micro
        assert int(options["--gradient_accumulation_steps"]) == number
        whole = "--gradient_checkpointing" in options
    return {
        "world": nodes * gpus,
        "nodes": nodes,
        **{"tp": tp, "pp": pp, "cp": 1, "vpp": 1, "ep": 1, "etp": 1},
        "dp": nodes * gpus // (tp * pp),
        "micro_batch": micro,
        "num_microbatches": number,
        "global_batch": config["train_batch_size"],
        "zero": config["zero_optimization"]["stage"],
        "dp_overlap": config["zero_optimization"].get("overlap_comm", False),
        "tp_overlap": False,
        "pp_overlap": False,
        "seq_len": int(options["--seq-length" if split else "--block_size"]),
        "steps": int(options["--train-iters" if split else "--max_steps"]),
        "whole": whole,
    }


def accelerate(files):
    """The plan that accelerate.yaml and the Trainer's arguments describe together."""
    config, options = yaml.safe_load(files["accelerate.yaml"]), words_of(files["launch.sh"])
    fsdp, sizes = config.get("fsdp_config"), config.get("parallelism_config", {})
    dp = sizes.get("parallelism_config_dp_shard_size", config["num_processes"])
    tp, cp = (sizes.get(f"parallelism_config_{name}_size", 1) for name in ("tp", "cp"))
    assert dp * tp * cp == config["num_processes"]
    micro, number = (
        int(options[f"--{name}"]) for name in ("per_device_train_batch_size", "gradient_accumulation_steps")
    )
    zero = 0 if fsdp is None else 3 if fsdp["fsdp_reshard_after_forward"] else 2
    synced = json.loads(options.get("--accelerator_config", "{}"))
    assert bool(synced.get("gradient_accumulation_kwargs", {}).get("sync_each_batch")) == (zero >= 2)
    return {
        "world": config["num_processes"],
        "nodes": config["num_machines"],
        **{"tp": tp, "cp": cp, "dp": dp, "pp": 1, "vpp": 1, "ep": 1, "etp": 1},
        "micro_batch": micro,
        "num_microbatches": number,
        "global_batch": micro * number * dp,
        "zero": zero,
        "seq_len": int(options["--block_size"]),
        "steps": int(options["--max_steps"]),
        "whole": fsdp["fsdp_activation_checkpointing"] if fsdp else "--gradient_checkpointing" in options,
    }


def nanotron(files):
    """The plan that nanotron.yaml describes."""
    config = yaml.safe_load(files["nanotron.yaml"])
    nodes, gpus = torchrun(files["launch.sh"])
    p, t = config["parallelism"], config["tokens"]
    assert p["dp"] * p["tp"] * p["pp"] == nodes * gpus
    return {
        "world": nodes * gpus,
        "nodes": nodes,
        **{"tp": p["tp"], "pp": p["pp"], "dp": p["dp"], "cp": 1, "vpp": 1, "ep": 1, "etp": 1},
        "micro_batch": t["micro_batch_size"],
        "num_microbatches": t["batch_accumulation_per_replica"],
        "global_batch": t["micro_batch_size"] * t["batch_accumulation_per_replica"] * p["dp"],
        "zero": config["optimizer"]["zero_stage"],
        "seq_len": t["sequence_length"],
        "steps": t["train_steps"],
        "sequence_parallel": p["tp_mode"] == "REDUCE_SCATTER",
        "tp_overlap": p["tp_linear_async_communication"],
        "pp_overlap": False,
        "whole": p["recompute_layer"],
    }


class Recorded(SimpleNamespace):
    """Any attribute, made when it is first used."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = Recorded()
        setattr(self, name, value)
        return value


def run_recipe(text, monkeypatch):
    """What Megatron-Bridge's recipe returns, run with stand-ins that record instead of the real packages."""
    names = {
        "torch": {"bfloat16": "bfloat16"},
        "torch.nn": {},
        "torch.nn.functional": {"silu": "silu"},
        "megatron.core.models.gpt.gpt_layer_specs": {"get_gpt_decoder_block_spec": dict},
        "megatron.bridge.models.gpt_provider": {"GPTModelProvider": lambda **kw: ("GPT", kw)},
        "megatron.bridge.models.mla_provider": {"MLAModelProvider": lambda **kw: ("MLA", kw)},
        "megatron.bridge.recipes.common": {"_pretrain_common": Recorded},
        "megatron.bridge.training.comm_overlap": {"CommOverlapConfig": dict},
        "megatron.bridge.training.config": {"ConfigContainer": Recorded},
        "megatron.bridge.training.gpt_step": {"forward_step": None},
        "megatron.bridge.training.mixed_precision": {
            "get_mixed_precision_config": lambda name: Recorded(name=name)
        },
        "megatron.bridge.training.pretrain": {"pretrain": None},
    }
    for name in names:
        for i in range(1, name.count(".") + 1):
            parent = name.rsplit(".", i)[0]
            monkeypatch.setitem(sys.modules, parent, types.ModuleType(parent))
    for name, content in names.items():
        module = types.ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, name, module)
    sys.modules["torch.nn"].functional = sys.modules["torch.nn.functional"]
    sys.modules["torch"].nn = sys.modules["torch.nn"]
    space = {"__name__": "recipe"}
    exec(compile(text, "recipe.py", "exec"), space)
    return space["config"]()


READERS = {
    "megatron": megatron,
    "torchtitan": torchtitan,
    "deepspeed": deepspeed,
    "accelerate": accelerate,
    "nanotron": nanotron,
}
