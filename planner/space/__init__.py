"""Candidates: every valid combination of the decisions, one numpy column a decision.

Validity is divisibility and topology, nothing else; limits and costs come later. The lattice is
walked in four steps, so that most of it is never written down:

* a `LayerKeys` row (tp, cp, ep, etp, micro_batch, recompute family) fixes what a layer costs, but for the
  set of recomputed modules, and so how many GPU-seconds a token takes at the very least;
* a `Pipelines` row adds pp and the ZeRO stage, which fix what a micro-batch takes within memory;
* a `Groups` row adds dp, and stands for every vpp and number of micro-batches that go with it;
* a `Candidates` row adds vpp and the recomputed modules, and stands for the numbers of micro-batches from
  `m_low` to `m_high`: with everything else fixed the time a token falls with their number (the bubble, the
  optimizer and the data-parallel traffic are paid once a step), so `m_high` bounds them all.
"""
