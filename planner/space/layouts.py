"""Layouts of layer keys: pipelines and replicas, ZeRO stages, and numbers of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from itertools import product

import numpy as np

from costmodel.pipeline import level_chunks, most_chunks
from planner.frameworks.rules import launches_chunks, launches_pipeline, launches_zero, node_scoped
from planner.instance import Instance, Pool
from planner.space.columns import Array, Candidates, Groups, Pipelines, values_of


@dataclass(frozen=True, slots=True)
class Layouts:
    """All (pp, dp) with which so many ranks a stage fill whole nodes of a pool: (layouts,), by pp and dp."""

    pp: Array
    dp: Array
    num_gpus: Array
    start: Array
    """(layers + 2,) where the layouts of each pp begin."""

    @classmethod
    def of(cls, instance: Instance, pool: Pool, ranks: int) -> Layouts:
        """Layouts of `ranks` = tp x cp."""
        permitted, node = instance.narrowing.permitted, pool.fabric.gpus_per_node
        pps = np.arange(1, instance.architecture.layers + 1)
        launches = np.array([launches_pipeline(instance, ranks, pp) for pp in pps.tolist()])
        pps = pps[permitted("pp", pps) & launches]
        # GPUs are a multiple of what fills both stages and nodes.
        whole = np.lcm(ranks * pps, node)
        least = np.maximum(-(-pool.min_nodes * node // whole), 1)
        which, more = numbered(np.maximum(pool.max_nodes * node // whole - least + 1, 0))
        pp, gpus = pps[which], (least[which] + more) * whole[which]
        dp = gpus // (ranks * pp)
        fine = permitted("dp", dp) & permitted("num_gpus", gpus) & permitted("nodes", gpus // node)
        pp, dp, gpus = pp[fine], dp[fine], gpus[fine]
        return cls(pp, dp, gpus, np.searchsorted(pp, np.arange(instance.architecture.layers + 2)))

    def cells(self, pp: Array) -> tuple[Array, Array]:
        """All layouts of each of some pipelines: the pipeline's position, and the layout's row."""
        which, place = numbered(self.start[pp + 1] - self.start[pp])
        return which, place + self.start[pp][which]


def numbered(number: Array) -> tuple[Array, Array]:
    """So many of each: of each of all of them, whose it is, and how many of that one's come before it."""
    which = np.repeat(np.arange(len(number)), number)
    return which, np.arange(len(which)) - np.repeat(np.cumsum(number) - number, number)


Span = tuple[int, int]
"""From the first to the last of whole numbers that follow each other."""


def spans(instance: Instance, decision: str, low: int, high: int) -> list[Span]:
    """What the problem lets a decision be between two values, as spans; computed once."""
    of = f"{decision} from {low} to {high}"
    if of not in instance.derived:
        values = np.arange(low, high + 1)
        inside = np.concatenate([[0], instance.narrowing.permitted(decision, values).astype(np.int64), [0]])
        first, last = np.flatnonzero(np.diff(inside) == 1), np.flatnonzero(np.diff(inside) == -1) - 1
        instance.derived[of] = list(zip((first + low).tolist(), (last + low).tolist(), strict=True))
    return instance.derived[of]


def batch_spans(instance: Instance) -> list[Span]:
    """Global batches that are allowed."""
    if not instance.narrowing.narrows("global_batch"):
        return [(instance.min_batch, instance.max_batch)]
    return spans(instance, "global_batch", instance.min_batch, instance.max_batch)


def microbatch_spans(instance: Instance) -> list[Span]:
    """Numbers of micro-batches that are allowed, whatever the batch."""
    if not instance.narrowing.narrows("num_microbatches"):
        return [(1, instance.max_batch)]
    return spans(instance, "num_microbatches", 1, instance.max_batch)


def microbatch_range(instance: Instance, micro_batch: Array, dp: Array) -> tuple[Array, Array]:
    """Fewest and most micro-batches that keep micro_batch*m*dp within the allowed global batches."""
    sequences, batches = micro_batch * dp, batch_spans(instance) or [(1, 0)]
    return np.maximum(-(-batches[0][0] // sequences), 1), batches[-1][1] // sequences


def microbatch_range_filled(instance: Instance, rows: Pipelines, dp: Array) -> tuple[Array, Array]:
    """The part of it in which pipelines fill, or in which they do not (they are empty if it is)."""
    low, high = microbatch_range(instance, rows.micro_batch, dp)
    filled = rows.filled == 1
    return np.where(filled, np.maximum(low, rows.pp), low), np.where(
        filled, high, np.minimum(high, rows.pp - 1)
    )


def clipped(
    low: Array, high: Array, sequences: Array, microbatches: Span, batches: Span
) -> tuple[Array, Array]:
    """The part of ranges of micro-batches, of so many sequences each over all replicas, within two spans."""
    first, last = -(-batches[0] // sequences), batches[1] // sequences
    return (
        np.maximum(np.maximum(low, microbatches[0]), first),
        np.minimum(np.minimum(high, microbatches[1]), last),
    )


def with_microbatches(instance: Instance, rows: Groups) -> Groups:
    """The rows, or one copy for each span of micro-batches and batches that the problem leaves of them."""
    if not any(instance.narrowing.narrows(name) for name in ("num_microbatches", "global_batch")):
        return rows
    parts, sequences = [rows.take(slice(0))], rows.micro_batch * rows.dp
    for span, batches in product(microbatch_spans(instance), batch_spans(instance)):
        low, high = clipped(rows.m_low, rows.m_high, sequences, span, batches)
        some = np.flatnonzero(low <= high)
        parts.append(replace(rows.take(some), m_low=low[some], m_high=high[some]))
    return Groups.concatenate(parts)


def zero_stages(
    instance: Instance, precision: str, ranks: int, pp: int, *, replicas: bool, hidden: bool = False
) -> list[int]:
    """ZeRO stages of pipelines of pp stages of `ranks` = tp*cp, by whether there are ranks to shard over.

    All of these share the states. Without them there is only 0. With a pipeline, stages 2 and 3 would reduce
    or gather for every micro-batch of every stage, unless the software reduces by rounds (`in_chunks`).
    """
    permits = instance.narrowing.permits
    if not permits("zero_scope", "full"):
        return []
    return _launched(instance, precision, ranks, pp, replicas=replicas, hidden=hidden)


def in_chunks(instance: Instance) -> tuple[int, ...]:
    """ZeRO stages that pipelines have with virtual stages only.

    Gradients that are reduced by rounds are those of a chunk, which the pipeline leaves and comes back to; of
    the only chunk of a rank they are whole until the last micro-batch, as with ZeRO 1.
    """
    return (2,) if instance.stack.data_parallel.reduces_by_round else ()


def _launched(
    instance: Instance, precision: str, ranks: int, pp: int, *, replicas: bool, hidden: bool
) -> list[int]:
    stages = (0, 1, *in_chunks(instance)) if pp > 1 else (0, 1, 2, 3)
    stages = stages if replicas else (0,)
    layout = {"split": ranks > 1, "pipeline": pp > 1, "replicas": replicas, "hidden": hidden}
    permits = instance.narrowing.permits
    return [z for z in stages if permits("zero", z) and launches_zero(instance, precision, z, **layout)]


def node_stages(
    instance: Instance, precision: str, ranks: int, pp: int, *, hidden: bool = False
) -> list[int]:
    """ZeRO stages of which the ranks of a node may share the states, and other nodes replicate them."""
    if not instance.narrowing.permits("zero_scope", "node"):
        return []
    stages = _launched(instance, precision, ranks, pp, replicas=True, hidden=hidden)
    return [zero for zero in stages if node_scoped(instance, zero)]


def fills_nodes(
    domain: Array | int, tp: Array | int, cp: Array | int, experts: Array | int, dp: Array
) -> Array:
    """Whether states can be shared within nodes: NVLink domains, of which a stage fills several.

    Neighbours in dp are tp*cp ranks apart, so that domain/(tp*cp) replicas lie in one and share with its cp
    ranks what domain/tp of them hold alike; experts have whole groups of ep*etp in it.
    """
    ranks = np.asarray(tp) * cp
    each = domain // ranks
    whole = (domain % ranks == 0) & (domain % np.asarray(experts) == 0) & (domain > tp)
    return whole & (dp > each) & (dp % np.maximum(each, 1) == 0)


def pipeline_zero_stages(
    instance: Instance, precision: str, ranks: int, pp: int, *, hidden: bool
) -> list[int]:
    """ZeRO stages of a pipeline, whatever its replicas and whichever of them share the states."""
    of = instance, precision, ranks, pp
    without, with_some = (zero_stages(*of, replicas=some, hidden=hidden) for some in (False, True))
    return sorted({*without, *with_some, *node_stages(*of, hidden=hidden)})


def chunk_counts(instance: Instance, pp: int) -> list[int]:
    """Values of vpp: 1, or with a pipeline as many chunks as ranks can keep step with (`level_chunks`)."""
    layers = instance.architecture.layers
    several = range(2, int(most_chunks(layers, pp)) + 1) if pp > 1 else ()
    level = [vpp for vpp in several if level_chunks(layers, pp, vpp)]
    permits = instance.narrowing.permits
    return [vpp for vpp in (1, *level) if permits("vpp", vpp) and launches_chunks(instance, pp, vpp)]


def expand(instance: Instance, rows: Groups) -> Candidates:
    """Candidates of groups: each vpp that is valid for them.

    Interleaved, memory grows with the micro-batches up to 2*pp of them: exactly pp are a row of their own.
    With that, all numbers of micro-batches of a row need the same memory.
    """
    parts = [tuple(np.empty(0, dtype=np.int64) for _ in range(4))]
    for pp in values_of(rows.pp):
        every = np.flatnonzero(rows.pp == pp)
        for vpp in chunk_counts(instance, pp):
            chunked = rows.hidden[every] | np.isin(rows.zero[every], in_chunks(instance))
            part = every[~chunked] if vpp == 1 < pp else every
            step = pp if vpp > 1 else 1
            low, high = -(-rows.m_low[part] // step) * step, rows.m_high[part] // step * step
            ranges = ((low, high),)
            if vpp > 1:
                ranges = ((np.maximum(low, 2 * pp), high), (low, np.minimum(high, pp)))
            for first, last in ranges:
                some = np.flatnonzero(first <= last)
                parts.append((part[some], first[some], last[some], np.full(len(some), vpp)))
    of, first, last, vpp = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns = {f.name: getattr(rows, f.name)[of] for f in fields(Groups)}
    return Candidates(**columns | {"m_low": first, "m_high": last}, vpp=vpp)


UNSHARED, ALL_RANKS, BY_NODE, EITHER = range(4)
"""Which ranks may share the states of a ZeRO stage."""
SHARINGS = 4


def _sharing(instance: Instance, zero: int) -> int:
    """ALL_RANKS, BY_NODE or EITHER."""
    permits = instance.narrowing.permits
    if not (permits("zero_scope", "node") and node_scoped(instance, zero)):
        return ALL_RANKS
    return EITHER if permits("zero_scope", "full") else BY_NODE


def _above_one(sizes: Array | int) -> Array:
    """An index into tables of two entries."""
    return (np.asarray(sizes) > 1).astype(np.int64)


@dataclass(frozen=True, slots=True)
class Multiplicity:
    """How many candidates a layout stands for, by tables over pp: what `expand` would write down."""

    plain: Array
    """(2, layers + 1) 1 if vpp = 1 is allowed, by whether pipelines need virtual stages: where the experts'
    traffic is hidden, and with the ZeRO stages `in_chunks`."""
    interleaved: Array
    """(layers + 1,) allowed values of vpp beyond 1."""
    zero: Array
    """(2, pools, 2, 2, 2, 2) ZeRO stages, those `in_chunks` apart from the others, by whether the experts'
    traffic is hidden, whether tp*cp > 1, whether pp > 1, whether there are ranks to shard over."""
    unsharded: Array
    """(pools, 2, 2, 2) the same whatever is hidden, whether stage 0 is one of them."""
    node: Array
    """(2, pools, 2, 2, 2) ZeRO stages within nodes by what is hidden, whether tp*cp > 1, whether pp > 1."""
    in_chunks: Array
    """(4,) of each ZeRO stage, whether it is `in_chunks`."""
    sharing: Array
    """(4,) of each ZeRO stage UNSHARED, or who may share its states: ALL_RANKS, BY_NODE or EITHER."""
    spans: tuple[tuple[Span, Span], ...] | None
    """Numbers of micro-batches and batches that go together, where the problem says which."""

    @classmethod
    def of(cls, instance: Instance) -> Multiplicity:
        chunks = [[], *(chunk_counts(instance, pp) for pp in range(1, instance.architecture.layers + 1))]
        stages = [
            zero_stages(instance, pool.precision, ranks, pp, replicas=replicas, hidden=hidden)
            for pool in instance.pools
            for hidden, ranks, pp, replicas in product((False, True), (1, 2), (1, 2), (False, True))
        ]
        within = [
            node_stages(instance, pool.precision, ranks, pp, hidden=hidden)
            for pool in instance.pools
            for hidden, ranks, pp in product((False, True), (1, 2), (1, 2))
        ]
        plain = np.array([int(1 in c) for c in chunks])
        named = any(instance.narrowing.narrows(name) for name in ("num_microbatches", "global_batch"))
        apart = in_chunks(instance)

        def counted(every: list[list[int]]) -> Array:
            """Of (2, ...) how many are not `in_chunks`, and how many are."""
            among = [sum(zero in apart for zero in of) for of in every]
            return np.array([[len(of) for of in every], among]) - np.array([among, [0] * len(every)])

        return cls(
            np.stack([plain, plain * (np.arange(len(plain)) <= 1)]),
            np.array([sum(1 for v in c if v > 1) for c in chunks]),
            counted(stages).reshape(2, -1, 2, 2, 2, 2),
            np.array([0 in of for of in stages]).reshape(-1, 2, 2, 2, 2)[:, 0],
            counted(within).reshape(2, -1, 2, 2, 2),
            np.isin(np.arange(4), apart),
            np.array([UNSHARED, *(_sharing(instance, zero) for zero in (1, 2, 3))]),
            tuple(product(microbatch_spans(instance), batch_spans(instance))) if named else None,
        )

    @property
    def kinds(self) -> Array:
        """(4,) of each ZeRO stage what the number of its candidates hangs on: `in_chunks` and `sharing`."""
        return self.in_chunks * SHARINGS + self.sharing

    def schedules(self, pp: Array, low: Array, high: Array, sequences: Array, chunked: Array | int) -> Array:
        """Values of vpp x numbers of micro-batches from `low` to `high`, of so many sequences each.

        `chunked`: pipelines need virtual stages.
        """
        single, several = np.zeros_like(low), np.zeros_like(low)
        parts = (
            [(low, high)] if self.spans is None else [clipped(low, high, sequences, *of) for of in self.spans]
        )
        for first, last in parts:
            single += np.maximum(last - first + 1, 0)
            several += np.maximum(last // pp - -(-first // pp) + 1, 0)
        return self.plain[np.asarray(chunked, dtype=np.int64), pp] * single + self.interleaved[pp] * several

    def stages(
        self, chunked: int, pool: int, hidden: int, ranks: Array | int, pp: Array, shards: Array, nodes: Array
    ) -> Array:
        """Values of the ZeRO stage, `in_chunks` or not, and of its scope; `nodes` as of `fills_nodes`."""
        of = chunked, pool, hidden, _above_one(ranks), _above_one(pp)
        return self.zero[(*of, _above_one(shards))] + self.node[of] * nodes

    def shares(
        self, pool: Array | int, sharing: Array | int, ranks: Array | int, pp: Array, shards: Array
    ) -> Array:
        """Whether layouts of a pipeline with a ZeRO stage have it over all ranks: some to share, or none."""
        unsharded = self.unsharded[pool, _above_one(ranks), _above_one(pp), _above_one(shards)]
        kind = np.asarray(sharing)
        return np.where(kind == UNSHARED, unsharded, (shards > 1) & (kind != BY_NODE))

    def scopes(
        self,
        pool: Array | int,
        sharing: Array | int,
        ranks: Array | int,
        pp: Array,
        shards: Array,
        nodes: Array,
    ) -> Array:
        """Values of its scope that layouts of a pipeline with a ZeRO stage have."""
        everywhere = self.shares(pool, sharing, ranks, pp, shards)
        return everywhere.astype(np.int64) + self.shared_by_node(sharing, nodes)

    def shared_by_node(self, sharing: Array | int, nodes: Array) -> Array:
        """Whether layouts of such a pipeline have it within nodes."""
        return nodes & (np.asarray(sharing) >= BY_NODE)

    def of_rows(self, rows: Groups) -> Array:
        """Candidates that groups, or rows with a schedule, stand for."""
        if isinstance(rows, Candidates):
            step = np.where(rows.vpp > 1, rows.pp, 1)
            number = (rows.m_high - rows.m_low) // step + 1
        else:
            chunked = rows.hidden | self.in_chunks[rows.zero]
            number = self.schedules(rows.pp, rows.m_low, rows.m_high, rows.micro_batch * rows.dp, chunked)
        return number * rows.modes
