"""What a target cannot launch. An exporter refuses; it never drops a feature of the plan."""

from __future__ import annotations

from planner.errors import PlannerError


class CannotExport(PlannerError):
    """Names the target, the feature, the plan's value, why it cannot be, and which targets can."""

    exit_code = 2

    def __init__(
        self, target: str, feature: str, value: object, why: str = "", able: tuple[str, ...] | None = None
    ) -> None:
        self.target, self.feature, self.value, self.why, self.able = target, feature, value, why, able
        lines = [f"{target} cannot launch this plan: {feature} {value}" + (f": {why}" if why else "")]
        if able is not None:
            lines.append(f"  targets that can: {', '.join(able) if able else 'none that the planner writes'}")
        super().__init__("\n".join(lines))

    def knowing(self, able: tuple[str, ...]) -> CannotExport:
        """The same refusal with the targets that can launch the plan."""
        return CannotExport(self.target, self.feature, self.value, self.why, able)
