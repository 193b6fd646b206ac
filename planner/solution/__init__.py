"""What a solve returns: plans with estimates, slack and reasons, the proof, and where it all came from.

The JSON of a `Solution` is read by other programs; `SCHEMA_VERSION` changes when a key does. Units
are the ones people report (days, dollars, GiB) and are in each key's name.
"""

from planner.solution.document import (
    SCHEMA_VERSION,
    End,
    Explored,
    Provenance,
    Solution,
    Status,
    Swing,
    read_solution,
)
from planner.solution.plan import (
    Decisions,
    Estimate,
    Kept,
    Losses,
    MemoryParts,
    MemoryRisk,
    Meter,
    PhasedRun,
    PhasePlan,
    Plan,
    PoolPart,
    Reason,
    RunnerUp,
    Scalar,
    Slack,
    Stage,
    Sure,
)
from planner.solution.proof import Conflict, Fates, MixingProof, MixingVerdict, Nearest, Proof, Relaxation

__all__ = [
    "SCHEMA_VERSION",
    "Conflict",
    "Decisions",
    "End",
    "Estimate",
    "Explored",
    "Fates",
    "Kept",
    "Losses",
    "MemoryParts",
    "MemoryRisk",
    "Meter",
    "MixingProof",
    "MixingVerdict",
    "Nearest",
    "PhasePlan",
    "PhasedRun",
    "Plan",
    "PoolPart",
    "Proof",
    "Provenance",
    "Reason",
    "Relaxation",
    "RunnerUp",
    "Scalar",
    "Slack",
    "Solution",
    "Stage",
    "Status",
    "Sure",
    "Swing",
    "read_solution",
]
