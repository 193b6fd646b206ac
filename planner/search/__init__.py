"""Branch and bound over candidates: the best plan, and the proof that none is better.

Layer keys are opened to layouts (groups), those that could win are expanded to rows, best first; each
level has a bound that costs more and says more than the one before it. The stages of the rows with the
best bounds are assigned exactly by CP-SAT until no open bound is better than what is exact.

* `goal`: what is best and what must hold.
* `pipelines`, `bounded`: what is written down at each level, with its bounds; `table`: all of it so far.
* `least`, `traffic`: what runs of layer keys and of pipelines take at least.
* `opening`: from pipelines to layouts. `shorter`: where a step is required to be short.
* `outside`: what limits rule out on the way.
* `branch`: the loop that all searches share; what it looks for is a target.
* `best`: the target that wants one best plan, or one for each of several questions.
* `choice`: the choice among rows by CP-SAT.
* `rows`: rows solved exactly.
* `ledger`: what became of every candidate.
* `reuse`: what what-ifs of one physics share; `what_if`: the table of one of them.
"""

from planner.search.best import best, best_each
from planner.search.goal import Effort, Goal, Mask, goal_of
from planner.search.rows import Plan, priced
from planner.search.table import Table

__all__ = ["Effort", "Goal", "Mask", "Plan", "Table", "best", "best_each", "goal_of", "priced"]
