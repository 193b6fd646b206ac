"""Plans on two pools at once: stages of a pipeline on different GPU types, or replicas on different ones."""

from planner.mixed.plan import MixedPlan, mixed_of
from planner.mixed.search import BestOfPairs, FrontOfPairs, best_of_pairs, front_of_pairs

__all__ = ["BestOfPairs", "FrontOfPairs", "MixedPlan", "best_of_pairs", "front_of_pairs", "mixed_of"]
