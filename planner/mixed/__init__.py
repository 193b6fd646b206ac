"""Plans on two pools at once: stages of a pipeline on different GPU types, or replicas on different ones."""

from planner.mixed.best import BestOfPairs, best_of_pairs
from planner.mixed.front import FrontOfPairs, front_of_pairs
from planner.mixed.plan import MixedPlan, mixed_of

__all__ = ["BestOfPairs", "FrontOfPairs", "MixedPlan", "best_of_pairs", "front_of_pairs", "mixed_of"]
