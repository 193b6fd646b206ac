"""The model of a Megatron-LM command line: shapes with the parser's own defaults."""

from __future__ import annotations

import ast
import re
from typing import Any

from costmodel.architecture import MOST_LAYERS, Architecture
from costmodel.cards import card_names, load_card
from planner.errors import Refused, shown
from planner.importers.options import Options, table

SHAPES = ("layers", "hidden", "ffn", "heads", "kv_heads", "head_dim")
GATED_SHARE, GATED_MULTIPLE = 8 / 3, 64
"""Width of a gated FFN that is not given: 4d * 2/3, down to a multiple of 64."""
PATTERN = re.compile(r"[\d\[\]()+*,\s]+")
LONGEST_PATTERN = 2000


def model_of(options: Options, warnings: list[str]) -> dict[str, Any] | None:
    """Architecture fields, or nothing where the command line has no model. Raises Refused."""
    layers, hidden = options.whole("num-layers", least=1), options.whole("hidden-size", least=1)
    heads = options.whole("num-attention-heads", least=1)
    if layers is None or hidden is None or heads is None:
        return None
    if layers > MOST_LAYERS:
        raise Refused(f"--num-layers {layers}", f"{MOST_LAYERS:,} layers at most")
    gated = options.has("swiglu") or options.has("quick-geglu")
    model: dict[str, Any] = {
        "name": f"Megatron-LM model of {layers} layers, {hidden} wide",
        "layers": layers,
        "hidden": hidden,
        "ffn": options.whole("ffn-hidden-size") or usual_ffn(hidden, gated),
        "heads": heads,
        "kv_heads": (options.whole("num-query-groups", 1) or 1)
        if options.has("group-query-attention")
        else heads,
        "head_dim": options.whole("kv-channels") or hidden // heads,
        "gated_mlp": gated,
        "tied_embeddings": not options.has("untie-embeddings-and-output-weights"),
        "norm": "rms" if options.text("normalization") == "RMSNorm" else "layer",
        "qk_norm": options.has("qk-layernorm") and not options.has("multi-latent-attention"),
        "attention_sinks": options.text("softmax-type") == "learnable",
        "mtp_layers": options.whole("mtp-num-layers", 0) or 0,
    }
    model |= biases(options) | positions(options) | latent(options, heads) | window(options, layers, warnings)
    if moe := experts(options, model, warnings):
        model["moe"] = moe
    if vocab := vocabulary(options, model, warnings):
        model["vocab"] = vocab
    else:
        options.open["model.vocab"] = "the vocabulary's size, which the tokenizer decides"
    return model


def usual_ffn(hidden: int, gated: bool) -> int:
    """4d, or for a gated FFN 8d/3 down to a multiple of 64."""
    return int(hidden * GATED_SHARE / GATED_MULTIPLE) * GATED_MULTIPLE if gated else 4 * hidden


def biases(options: Options) -> dict[str, Any]:
    """Linear layers have biases unless switched off; queries, keys and values may have them alone."""
    linear = not options.has("disable-bias-linear")
    return {"mlp_bias": linear, "output_bias": linear, "qkv_bias": linear or options.has("add-qkv-bias")}


def positions(options: Options) -> dict[str, Any]:
    """Rows of a learned position table: Megatron's default unless RoPE or none is chosen."""
    rotary = options.has("use-rotary-position-embeddings") or options.has("no-position-embedding")
    kind = "rope" if rotary else options.text("position-embedding-type", "learned_absolute")
    rows = options.whole("max-position-embeddings") or options.whole("seq-length") or 0
    return {"learned_positions": rows if kind == "learned_absolute" else 0}


def latent(options: Options, heads: int) -> dict[str, Any]:
    """Multi-head latent attention."""
    if not options.has("multi-latent-attention"):
        return {}
    mla = {
        "q_lora": options.whole("q-lora-rank"),
        "kv_lora": options.whole("kv-lora-rank", 32),
        "qk_nope": options.whole("qk-head-dim", 128),
        "qk_rope": options.whole("qk-pos-emb-head-dim", 64),
        "v_dim": options.whole("v-head-dim", 128),
    }
    return {"mla": mla, "kv_heads": heads}


def window(options: Options, layers: int, warnings: list[str]) -> dict[str, Any]:
    """Sliding windows: `--window-size 127,0` sees 128 tokens; every n-th layer may skip it."""
    numbers = re.findall(r"-?\d+", options.text("window-size") or "")
    if not numbers or int(numbers[0]) < 0:
        return {}
    skip = options.text("window-attn-skip-freq")
    if skip is None:
        count = layers
    elif skip.isdecimal():
        count = layers - layers // int(skip) if int(skip) else layers
    else:
        count = sum(pattern_of(skip, layers, "window-attn-skip-freq"))
    warnings.append(f"sliding window: {count} of {layers} layers see {int(numbers[0]) + 1} tokens")
    return {"sliding_window": int(numbers[0]) + 1, "sliding_layers": count}


def experts(options: Options, model: dict[str, Any], warnings: list[str]) -> dict[str, Any] | None:
    """Experts, their widths, and which layers have them."""
    count = options.whole("num-experts")
    if not count:
        return None
    pattern = moe_pattern(options.text("moe-layer-freq") or "1", model["layers"])
    first, every, exact = placed(pattern)
    if not exact:
        warnings.append(
            f"moe-layer-freq: {sum(pattern)} MoE layers are priced one in {every} after {first} dense ones"
        )
    return {
        "experts": count,
        "top_k": options.whole("moe-router-topk", 2),
        "moe_ffn": options.whole("moe-ffn-hidden-size") or model["ffn"],
        "shared_expert_ffn": options.whole("moe-shared-expert-intermediate-size", 0) or 0,
        "shared_expert_gate": options.has("moe-shared-expert-gate"),
        "first_dense_layers": first,
        "moe_every_n_layers": every,
    }


def moe_pattern(text: str, layers: int) -> list[int]:
    """1 for each MoE layer: every n-th from the first, or as a list expression says."""
    if text.isdecimal() and int(text) > 0:
        return [1 if layer % int(text) == 0 else 0 for layer in range(layers)]
    return pattern_of(text, layers, "moe-layer-freq")


def pattern_of(text: str, layers: int, option: str) -> list[int]:
    """A list expression such as `([0]*3+[1]*58)`. Raises Refused."""
    accepted = (
        f"a number, or a list expression of {layers} zeros and ones such as ([0]*3+[1]*{max(1, layers - 3)})"
    )
    try:
        if not PATTERN.fullmatch(text):
            raise ValueError
        found = _list(ast.parse(text, mode="eval").body)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        raise Refused(f"--{option} {shown(text)}", accepted) from None
    if not isinstance(found, list) or len(found) != layers or not set(found) <= {0, 1}:
        raise Refused(f"--{option} {shown(text)} does not describe {layers} layers", accepted)
    return found


def _list(node: ast.AST) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.List):
        return [_list(each) for each in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mult)):
        left, right = _list(node.left), _list(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return left + right
        size = right if isinstance(left, list) else left
        if isinstance(node.op, ast.Mult) and isinstance(size, int) and 0 <= size <= LONGEST_PATTERN:
            found = left * right
            if isinstance(found, list) and len(found) <= LONGEST_PATTERN:
                return found
    raise ValueError


def placed(pattern: list[int]) -> tuple[int, int, bool]:
    """Leading dense layers and the period of the rest, and whether that is the pattern itself."""
    first = pattern.index(1) if 1 in pattern else len(pattern)
    for every in range(1, len(pattern) + 1):
        for leading in range(max(0, first - every + 1), first + 1):
            made = [int(i >= leading and (i - leading) % every == every - 1) for i in range(len(pattern))]
            if made == pattern:
                return leading, every, True
    share = (len(pattern) - first) / max(1, sum(pattern))
    return (0 if share > 1 else first), max(1, round(share)), False


def vocabulary(options: Options, model: dict[str, Any], warnings: list[str]) -> int | None:
    """As given, as the tokenizer names it, or of the card with the same shapes."""
    if given := options.whole("padded-vocab-size") or options.whole("vocab-size", key="model.vocab"):
        return given
    tokenizer = options.text("tokenizer-type")
    if tokenizer in table()["vocabularies"]:
        known = int(table()["vocabularies"][tokenizer])
        warnings.append(f"vocabulary: not given; {known}, that of {tokenizer}")
        return known
    return _of_same_shapes(model, warnings)


def _of_same_shapes(model: dict[str, Any], warnings: list[str]) -> int | None:
    """The vocabulary of a card with these shapes; the largest where several differ in it."""
    cards: list[Architecture] = [load_card(name) for name in card_names()]
    same = [card for card in cards if all(getattr(card, field) == model[field] for field in SHAPES)]
    if not same:
        return None
    chosen = max(same, key=lambda card: card.vocab)
    others = ", ".join(f"{card.vocab} of {card.name}" for card in same if card.vocab != chosen.vocab)
    warnings.append(
        f"vocabulary: not given; {chosen.vocab}, that of {chosen.name}, which has these shapes"
        + (f" (the smaller of {others} has them too)" if others else "")
    )
    return chosen.vocab
