"""The model that is trained: shapes only. Parameters, FLOPs and bytes are computed from these elsewhere."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

from hardware.documented import Documented

LayerKind = Literal["dense", "moe"]
MOST_LAYERS = 10_000
"""More are a slip of the finger: the deepest transformers that were ever trained have 1,000."""


class Shape(Documented):
    """Frozen, and closed: an unknown key in a model card is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class MixtureOfExperts(Shape):
    """Which layers are MoE and how wide their experts are."""

    experts: PositiveInt
    """Routed experts of a layer."""
    top_k: PositiveInt
    """Routed experts a token meets."""
    moe_ffn: PositiveInt
    """Width of one routed expert."""
    shared_expert_ffn: NonNegativeInt = 0
    """Total width of the shared experts (DeepSeek-V2: 2 x 1536 = 3072), 0 for none."""
    shared_expert_gate: bool = False
    """A learned gate on the shared experts (Qwen): hidden weights a layer."""
    first_dense_layers: NonNegativeInt = 0
    """Leading layers with a dense FFN."""
    moe_every_n_layers: PositiveInt = 1
    """Of the layers after the leading dense ones every n-th is MoE (the last of each group of n)."""
    moe_layers: tuple[NonNegativeInt, ...] = ()
    """MoE layers by number from 0, ascending, where the two keys above cannot say which they are."""

    @model_validator(mode="after")
    def _one_way_to_say_which(self) -> MixtureOfExperts:
        if list(self.moe_layers) != sorted(set(self.moe_layers)):
            raise ValueError("moe_layers must be ascending, each layer once")
        if self.moe_layers and (self.first_dense_layers or self.moe_every_n_layers > 1):
            raise ValueError("moe_layers takes the place of first_dense_layers and moe_every_n_layers")
        return self


class LatentAttention(Shape):
    """Multi-head latent attention (DeepSeek)."""

    q_lora: NonNegativeInt | None = None
    """Rank of the query compression; none or 0 = a plain query projection (V2-Lite)."""
    kv_lora: PositiveInt
    """Rank of the key-value compression."""
    qk_nope: PositiveInt
    """Query and key width of a head without position."""
    qk_rope: PositiveInt
    """Its rotary width; keys share one."""
    v_dim: PositiveInt
    """Value width of a head."""


class Architecture(Shape):
    """A decoder-only transformer.

    Field names are those of common run tables: `hidden` d, `ffn` d_ff, `heads` h, `kv_heads` h_kv,
    `head_dim` d_h (h*d_h need not equal d), `vocab` V.
    """

    name: str
    """What reports call it."""
    layers: Annotated[PositiveInt, Field(le=MOST_LAYERS)]
    """Transformer layers, without multi-token-prediction modules."""
    hidden: PositiveInt
    """Width of the residual stream, d."""
    ffn: PositiveInt
    """Width of a dense FFN, d_ff."""
    heads: PositiveInt
    """Query heads, h."""
    kv_heads: PositiveInt
    """Key-value heads, h_kv: below `heads` with grouped queries, 1 for multi-query."""
    head_dim: PositiveInt
    """Width of a head, d_h; heads*head_dim need not be hidden."""
    vocab: PositiveInt
    """Rows of the embedding, V, without padding."""
    gated_mlp: bool = True
    """Three matrices (SwiGLU, GeGLU) instead of two."""
    tied_embeddings: bool = False
    """The LM head shares the weights of the embedding."""
    norm: Literal["rms", "layer"] = "rms"
    """LayerNorm has a bias as well as a weight."""
    norms_per_layer: PositiveInt = 2
    """4 in Gemma 2 and 3; 1 where attention and MLP share one."""
    qkv_bias: bool = False
    """Bias on the query, key and value projections."""
    output_bias: bool = False
    """Bias on the output projection of attention."""
    mlp_bias: bool = False
    """Bias on the FFN, and on experts and router."""
    qk_norm: bool = False
    """RMSNorm on each head's queries and keys: 2*head_dim weights a layer."""
    attention_sinks: bool = False
    """One learned logit a head (gpt-oss)."""
    learned_positions: NonNegativeInt = 0
    """Rows of a learned position table (GPT-2/3), 0 for rotary or none."""
    sliding_window: PositiveInt | None = None
    """Tokens an attention row sees in `sliding_layers` of the layers."""
    sliding_layers: NonNegativeInt = 0
    """Layers with the window."""
    chunked_window: bool = False
    """The window does not slide: sequences are cut into chunks of it (Llama 4), each attended by itself."""
    moe: MixtureOfExperts | None = None
    """Experts, in models that have them."""
    mla: LatentAttention | None = None
    """Latent attention, in models that have it."""
    mtp_layers: NonNegativeInt = 0
    """Multi-token-prediction modules after the last layer (DeepSeek-V3: 1); not counted in `layers`."""
    max_seq_len: PositiveInt | None = None
    """Longest sequence of the published config; for information."""
    source: str = ""
    """Where the shapes come from."""

    @model_validator(mode="after")
    def _consistent(self) -> Architecture:
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads ({self.kv_heads}) must divide heads ({self.heads})")
        if self.moe and self.moe.top_k > self.moe.experts:
            raise ValueError(f"moe.top_k ({self.moe.top_k}) exceeds moe.experts ({self.moe.experts})")
        if self.moe and self.moe.first_dense_layers > self.layers:
            raise ValueError(
                f"moe.first_dense_layers ({self.moe.first_dense_layers}) exceeds layers ({self.layers})"
            )
        if self.moe and self.moe.moe_layers and self.moe.moe_layers[-1] >= self.layers:
            raise ValueError(f"moe.moe_layers names layer {self.moe.moe_layers[-1]} of {self.layers}, from 0")
        if self.sliding_layers > self.layers:
            raise ValueError(f"sliding_layers ({self.sliding_layers}) exceeds layers ({self.layers})")
        return self

    def pattern(self) -> tuple[LayerKind, ...]:
        """The kind of each layer from first to last."""
        if self.moe is None:
            return ("dense",) * self.layers
        if self.moe.moe_layers:
            return tuple("moe" if i in self.moe.moe_layers else "dense" for i in range(self.layers))
        first, every = self.moe.first_dense_layers, self.moe.moe_every_n_layers
        return tuple(
            "moe" if i >= first and (i - first) % every == every - 1 else "dense" for i in range(self.layers)
        )

    @property
    def kinds(self) -> tuple[LayerKind, ...]:
        """The kinds that occur, dense before moe: the order of every `kinds` axis in this package."""
        pattern = self.pattern()
        return tuple(kind for kind in ("dense", "moe") if kind in pattern)

    @property
    def q_width(self) -> int:
        """h*d_h: width of queries (MLA: of the no-position and rotary parts together)."""
        return self.heads * (self.mla.qk_nope + self.mla.qk_rope if self.mla else self.head_dim)

    @property
    def kv_width(self) -> int:
        """h_kv*d_h: width of keys (and of values) without MLA."""
        return self.kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        """Width of the attention output before its projection."""
        return self.heads * (self.mla.v_dim if self.mla else self.head_dim)
