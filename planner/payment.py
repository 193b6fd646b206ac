"""What the part `paying` of `planner explain` returns: what each way to pay costs, and where they cross."""

from __future__ import annotations

from pydantic import Field

from costmodel.money import Kind
from planner.document import Report


class Way(Report):
    """The plan, paid for in one way."""

    kind: Kind
    chosen: bool
    """Whether the problem says so."""
    assumed: bool = False
    """Whether the price is the catalogue's typical one."""
    price: float
    """USD per GPU-hour."""
    price_parts: dict[str, float] = Field(default_factory=dict)
    """Owned: USD per GPU-hour of capital, power, upkeep and staff."""
    committed_days: float = 0.0
    """Reserved: the window that is paid in any case."""
    lost_a_month: float = 0.0
    """Spot: share of nodes taken back within a month."""
    days: float
    """Longer on spot, as nodes are taken back."""
    dollars: float
    breaks: tuple[str, ...] = ()
    """Limits that it breaks: deadline, budget, energy, carbon, nodes."""
    text: str


class Unpriced(Report):
    """A way to pay of which no price is known."""

    kind: Kind
    text: str
    """What would have to be given."""


class Cheaper(Report):
    """From where on one way to pay is cheaper than another, for this plan."""

    way: Kind
    than: Kind
    today: bool
    """Whether it is at the figures as they are."""
    figures: dict[str, float] = Field(default_factory=dict)
    """Where both cost the same, one figure changed at a time: `price` of this way, `than_price` of the other;
    reserved: `window_share`, `longest_window_days`; spot: `stops_a_month` of a node, `lost_a_month`,
    `hours_between`, and `hours_between_in_time` where the deadline breaks before; owned: `busy_share`,
    `hours_a_year`, `paid_back_days`, `node_price`. A figure that no value of it decides is missing."""
    text: str


class FineTuning(Report):
    """A fine-tune beside the run."""

    gpus: int
    days: float
    dollars: float
    runs: float
    """So many cost as much as the run."""
    text: str


class Paying(Report):
    """Ways to pay for the plan."""

    ways: tuple[Way, ...]
    """Cheapest first."""
    unpriced: tuple[Unpriced, ...] = ()
    cheaper: tuple[Cheaper, ...] = ()
    mfu_point_dollars: float
    """What one point of MFU is worth."""
    fine_tune: FineTuning | None = None
    """Where the problem describes one."""
    text: tuple[str, ...] = ()
    """What else to know, a sentence each."""
