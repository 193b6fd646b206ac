"""Selective recompute: what repeating single modules in the backward pass costs a layer."""

from __future__ import annotations

from dataclasses import dataclass, field

from costmodel.architecture import LayerKind
from costmodel.block import Block, shared_block
from costmodel.elementwise import activation_time, norm_time, rope_time
from costmodel.linears import ffn_input, latent_up
from costmodel.modules import COVERED
from costmodel.moe import expert_activation
from costmodel.norms import fused_into_ffn, norms_before, separate_norms
from costmodel.passes import Passes
from costmodel.run import Column, Run


@dataclass(slots=True)
class Repeated:
    """One kind of layer, whose modules can be repeated in the backward pass; each is priced once."""

    run: Run
    kind: LayerKind
    attention: Block
    ffn: Block
    core: Passes
    """Of the attention core."""
    dispatch: Column
    """Seconds of an all-to-all that show."""
    known: dict[str, Column] = field(default_factory=dict[str, Column])

    def seconds(self, modules: frozenset[str]) -> Column:
        """Seconds a micro-batch that recomputing modules adds to the layer: the forward of each again."""
        covered = {part for whole in modules for part in COVERED.get(whole, ())}
        total: Column = 0.0
        for module in sorted(modules - covered):
            if module not in self.known:
                self.known[module] = self._forward(module)
            total = total + self.known[module]
        return total

    def _forward(self, module: str) -> Column:
        """Seconds of one module's forward; 0 where the layer has none."""
        run = self.run
        if module == "per_op":
            every = self.attention.forward + self.ffn.forward + self.core.forward
            return run.stack.recompute.per_op_share * every
        if module == "core_attn":
            return self.core.forward
        if module == "layernorm":
            return self._norms(separate_norms(run, self.kind))
        if module == "mla_up_proj":
            mla = run.architecture.mla
            return latent_up(run, mla).forward + rope_time(run)[0] if mla else 0.0
        return self._dense(module) if self.kind == "dense" else self._experts(module)

    def _norms(self, number: int) -> Column:
        """Seconds of so many norms forward."""
        every = self.run.stack.recompute.norm_share * norm_time(self.run)[0]
        return every * number / max(norms_before(self.run), 1)

    def _dense(self, module: str) -> Column:
        """The modules of a dense FFN."""
        run, width = self.run, self.run.architecture.ffn
        if module == "mlp":
            return self.ffn.forward + self._norms(int(fused_into_ffn(run, self.kind)))
        if module == "mlp_in":
            return ffn_input(run, width).forward
        return activation_time(run, run.tokens, width / run.tp)[0] if module == "act" else 0.0

    def _experts(self, module: str) -> Column:
        """The modules of a MoE block; `moe` repeats both all-to-alls as well."""
        run, moe = self.run, self.run.architecture.moe
        if module == "moe":
            return self.ffn.forward + 2 * self.dispatch
        if module == "moe_act" and moe:
            return expert_activation(run, moe).forward
        shared = shared_block(run) if module == "shared_experts" else None
        return shared.forward if shared else 0.0
