"""The section `pricing:`: how the GPUs of each pool are paid for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, WithJsonSchema, model_validator

from costmodel.money import Kind, Ownership, Tariff, owned_price
from costmodel.units import DAY
from hardware.accelerator import Accelerator
from hardware.site import site_purchase, site_reliability
from planner.errors import Refused
from planner.narrowing import one_of
from planner.power import Power
from planner.quantities import Dollars, Duration, Fraction, Price, Strict
from planner.site_units import Lifetime, Yearly

KINDS: tuple[Kind, ...] = ("on_demand", "reserved", "spot", "owned")
RENTED = ("on_demand", "reserved", "spot")
ALL = "all"
KEYS = {
    "price": RENTED,
    "window": ("reserved",),
    "lost_a_month": ("spot",),
    "node": ("owned",),
    "network": ("owned",),
    "years": ("owned",),
    "busy": ("owned",),
    "residual": ("owned",),
    "upkeep": ("owned",),
    "staff": ("owned",),
    "storage": ("owned",),
}
"""Which kinds a key belongs to."""


class Offer(Strict):
    """One way to pay for GPUs."""

    kind: Annotated[Literal["on_demand", "reserved", "spot", "owned"], BeforeValidator(one_of(KINDS))]
    """on_demand, reserved, spot or owned."""
    price: Price | None = None
    """Rented: USD/gpu-hour; the pool's, or else the catalogue's typical one of the kind, unless given."""
    window: Duration | None = None
    """Reserved: paid for as a whole, whether it is used or not."""
    lost_a_month: Fraction | None = None
    """Spot: share of nodes taken back within a month; these count as failures."""
    node: Dollars | None = None
    """Owned: a server with its GPUs and NICs; the catalogue's where it has one."""
    network: Dollars | None = None
    """Owned: switches, cables and optics for each node."""
    years: Lifetime | None = None
    """Owned: until the purchase is written off."""
    busy: Fraction | None = None
    """Owned: share of their life in which the GPUs train; idle hours are paid by the busy ones."""
    residual: Fraction | None = None
    """Owned: share of the price that is left at the end."""
    upkeep: Fraction | None = None
    """Owned: parts, support and space, a year, as a share of the price."""
    staff: Yearly | None = None
    """Owned: USD a GPU and year."""
    storage: Dollars | None = None
    """Owned: storage servers, for each node."""

    @model_validator(mode="before")
    @classmethod
    def _one_word(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _belongs(self) -> Self:
        for key, kinds in KEYS.items():
            if getattr(self, key) is not None and self.kind not in kinds:
                found = f"{key} is given, but the kind is {self.kind}"
                raise Refused(found, f"{key} only with {' or '.join(kinds)}", "", (key,))
        if self.lost_a_month == 1:
            raise Refused("found 1", "a share below 1: 0.2, 20%", "", ("lost_a_month",))
        if self.busy == 0:
            raise Refused("found 0", "a share above 0", "", ("busy",))
        if self.residual == 1:
            accepted = "a share below 1: what is bought does not keep its whole price"
            raise Refused("found 1", accepted, "", ("residual",))
        return self

    def tariff(self, gpu: Accelerator, power: Power, price: float | None = None) -> Tariff:
        """What an hour costs; `price` is the pool's own where its file says one. Raises `Refused`."""
        if self.kind == "owned":
            return Tariff("owned", owned_price(self.ownership(gpu, power)).total)
        bands = {"on_demand": gpu.prices.on_demand, "reserved": gpu.prices.reserved, "spot": gpu.prices.spot}
        band = bands[self.kind]
        usual = band.typical if band is not None else None
        paid = next((each for each in (self.price, price, usual) if each is not None), None)
        if paid is None:
            accepted = "a price, such as 1.00 USD/gpu-hour"
            raise Refused(f"no usual {self.kind} price of {gpu.name} is known", accepted, "", ("price",))
        lost = 0.0
        if self.kind == "spot":
            usual_loss = site_reliability().spot.lost_a_month
            lost = usual_loss if self.lost_a_month is None else self.lost_a_month
        return Tariff(self.kind, paid, (self.window or 0.0) / DAY, lost)

    def ownership(self, gpu: Accelerator, power: Power) -> Ownership:
        """What one node costs its owner. Raises `Refused` where neither file nor catalogue say."""
        facts = site_purchase()
        known = facts.nodes.get(gpu.name)
        node = self.node if self.node is not None else known and known.node
        network = self.network if self.network is not None else known and known.network
        if node is None or network is None:
            missing = "node" if node is None else "network"
            names = ", ".join(facts.nodes)
            found = f"what a {missing} with {gpu.name} costs is not known"
            raise Refused(found, f"{missing}: an amount in USD", f"known for {names}", (missing,))

        def given(value: float | None, usual: float) -> float:
            return usual if value is None else value

        return Ownership(
            node=node,
            network=network,
            gpus_per_node=gpu.gpus_per_node,
            years=given(self.years, facts.years),
            busy=given(self.busy, 1.0),
            residual=given(self.residual, facts.residual),
            upkeep=given(self.upkeep, facts.upkeep),
            staff=given(self.staff, facts.staff_a_year / facts.gpus_per_engineer),
            storage=given(self.storage, 0.0),
            watts=power.watts(gpu).training,
            pue=power.pue,
            price_per_kwh=power.electricity,
        )


class Pricing(Offer):
    """How GPUs are paid for, and what else is offered."""

    instead: tuple[Offer, ...] = ()
    """Other offers, with the keys of this section, for `planner explain --part paying` to compare."""

    @model_validator(mode="after")
    def _once_each(self) -> Pricing:
        kinds = [self.kind, *(offer.kind for offer in self.instead)]
        for index, kind in enumerate(kinds[1:]):
            if kind in kinds[: index + 1]:
                raise Refused(f"{kind} is there twice", "each kind once", "", ("instead", index))
        return self

    def offer_of(self, kind: Kind) -> Offer | None:
        """The offer of one kind, where there is one."""
        return next((offer for offer in (self, *self.instead) if offer.kind == kind), None)


def price_words(gpu: Accelerator, tariff: Tariff, assumed: bool) -> str:
    """What an hour costs, as a sentence: of the catalogue where it is assumed, or of a kind of tariff."""
    price = f"{gpu.name} is priced at {tariff.price:.2f} USD/gpu-hour"
    if tariff.kind == "owned":
        return f"{price}: purchase, power, upkeep and staff of one's own GPUs."
    kind = tariff.kind.replace("_", "-")
    if tariff.kind == "spot":
        return f"{price}, spot; {tariff.lost_a_month:.0%} of its nodes are taken back within a month."
    return f"{price}, typical of {kind} GPUs." if assumed else f"{price}, {kind}."


def _by_pool(value: Any) -> Any:
    """One kind for all pools (a word, or a mapping with `kind`), or a mapping of GPU names."""
    if isinstance(value, dict) and "kind" not in value:
        return value
    return {ALL: value}


POOLS = {
    "anyOf": [
        {"enum": list(KINDS)},
        {"type": "object"},
    ],
    "examples": [
        "spot",
        {"kind": "reserved", "window": "60 days"},
        {"H800": {"kind": "owned"}, "H20": "spot"},
    ],
}
Prices = Annotated[dict[str, Pricing], BeforeValidator(_by_pool), WithJsonSchema(POOLS)]


def pricing_of(prices: dict[str, Pricing], gpu: Accelerator) -> Pricing | None:
    """The entry for a pool's GPU, or for all; names are those of the catalogue, whatever their case."""
    spelled = {name.upper(): each for name, each in prices.items()}
    names = (gpu.name, *gpu.aliases, ALL)
    return next((spelled[name.upper()] for name in names if name.upper() in spelled), None)


def unknown_pools(prices: dict[str, Pricing], gpus: list[Accelerator]) -> list[str]:
    """Names in the section that belong to no pool."""
    known = {name.upper() for gpu in gpus for name in (gpu.name, *gpu.aliases)} | {ALL.upper()}
    return [name for name in prices if name.upper() not in known]
