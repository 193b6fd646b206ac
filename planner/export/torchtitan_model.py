"""Which model of torchtitan has the plan's shapes: one it registers, or Llama's block with other sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from costmodel.architecture import Architecture
from costmodel.cards import load_card
from planner.export.job import Job
from planner.export.refusal import CannotExport
from planner.importers.torchtitan_model import flavors

MODULES = ("llama3", "qwen3", "deepseek_v3")
"""Models that 0.2.2 and 0.3.0 both have, with the same flavors."""
CUSTOM = "planner"
"""The flavor under which shapes of one's own are registered."""
NOT_SHAPES = {"name", "source", "max_seq_len"}


@dataclass(frozen=True, slots=True)
class Flavor:
    """A model by torchtitan's names."""

    module: str
    flavor: str

    @property
    def custom(self) -> bool:
        """Llama's block with the plan's own sizes, registered by a file that is written too."""
        return self.flavor == CUSTOM


@cache
def registered() -> dict[Flavor, Architecture]:
    """The shapes of each flavor; torchtitan 0.2.2 trains none of them with multi-token prediction."""
    known = {
        Flavor(module, name): load_card(model)
        if isinstance(model, str)
        else Architecture.model_validate(model)
        for module in MODULES
        for name, model in flavors()[module].items()
    }
    return {flavor: a.model_copy(update={"mtp_layers": 0}) for flavor, a in known.items()}


def shapes(architecture: Architecture) -> dict[str, Any]:
    """What two models must share to be the same."""
    return architecture.model_dump(exclude=NOT_SHAPES)


def flavor_of(job: Job) -> Flavor:
    """The flavor with the job's shapes. Raises `CannotExport`."""
    wanted = shapes(job.architecture)
    for flavor, architecture in registered().items():
        if shapes(architecture) == wanted:
            return flavor
    if is_llama(job.architecture):
        return Flavor("llama3", CUSTOM)
    known = ", ".join(f"{flavor.module} {flavor.flavor}" for flavor in registered())
    extra = " and multi-token prediction" if job.architecture.mtp_layers else ""
    raise CannotExport(
        "torchtitan",
        "the model",
        f"{job.architecture.name}{extra}",
        f"it has {known}, and Llama in other sizes",
    )


def is_llama(a: Architecture) -> bool:
    """Llama's block: RMSNorm twice, SwiGLU, grouped queries, rotary positions, no bias, nothing tied."""
    plain = Architecture(
        name=a.name,
        layers=a.layers,
        hidden=a.hidden,
        ffn=a.ffn,
        heads=a.heads,
        kv_heads=a.kv_heads,
        head_dim=a.head_dim,
        vocab=a.vocab,
    )
    return shapes(plain) == shapes(a) and a.heads * a.head_dim == a.hidden


def flavor_file(job: Job, head: str) -> str:
    """A module for torchtitan 0.2.2's `experimental.custom_import` that registers the plan's sizes.

    Its FFN width is round_up(int(multiplier * int(8*dim/3)), multiple_of): with the width itself as the
    multiple, and a multiplier that keeps the product below it, that is the width.
    """
    a = job.architecture
    usual = 2 * 4 * a.hidden // 3
    sizes = {
        "dim": a.hidden,
        "n_layers": a.layers,
        "n_heads": a.heads,
        "n_kv_heads": a.kv_heads,
        "vocab_size": a.vocab,
        "multiple_of": a.ffn,
    } | ({"ffn_dim_multiplier": a.ffn / usual / 2} if usual > a.ffn else {})
    arguments = "".join(f"    {name}={value!r},\n" for name, value in sizes.items())
    return f'''"""{head}
"""

import os

from torchtitan.models.llama3 import TransformerModelArgs, llama3_args

llama3_args["{CUSTOM}"] = TransformerModelArgs(
{arguments}    rope_theta=float(os.environ["ROTARY_BASE"]),
)
'''


def flavor_lines(job: Job) -> str:
    """The same for the recipe of torchtitan 0.3.0: a function that builds Llama's block in these sizes."""
    a = job.architecture
    return f'''

def sizes(attn_backend: str, tp_gemm_backend: str = "default") -> Llama3Model.Config:
    """Llama's block in the plan's sizes."""
    return Llama3Model.Config(
        dim={a.hidden},
        vocab_size={a.vocab},
        tok_embeddings=Embedding.Config(
            num_embeddings={a.vocab}, embedding_dim={a.hidden}, param_init=llama3._EMBEDDING_INIT
        ),
        norm=RMSNorm.Config(normalized_shape={a.hidden}, param_init=llama3._NORM_INIT),
        lm_head=Linear.Config(
            in_features={a.hidden}, out_features={a.vocab}, param_init=llama3._output_linear_init({a.hidden})
        ),
        layers=llama3._build_llama3_layers(
            n_layers={a.layers},
            dim={a.hidden},
            n_heads={a.heads},
            n_kv_heads={a.kv_heads},
            hidden_dim={a.ffn},
            rope=ComplexRoPE.Config(
                dim={a.head_dim}, max_seq_len={job.seq_len}, theta=float(os.environ["ROTARY_BASE"])
            ),
            attn_backend=attn_backend,
            tp_gemm_backend=tp_gemm_backend,
        ),
    )


llama3.llama3_configs["{CUSTOM}"] = sizes
'''
