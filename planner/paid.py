"""A plan's run, paid for in one way: the same layout on the same GPUs, for as long as it then takes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isfinite

from costmodel.money import Kind, Ownership, Tariff
from costmodel.units import DAY
from planner.chance import length_quantile
from planner.confidence import Band
from planner.errors import Refused
from planner.outlook import Outlook
from planner.payment import Unpriced
from planner.pricing import KINDS, Offer
from planner.running import losses_of
from planner.site import Site


@dataclass(frozen=True, slots=True)
class Paid:
    """One way to pay for a plan."""

    ahead: Outlook
    """The run as the problem says."""
    site: Site
    """What surrounds its GPUs, as the problem says."""
    tariff: Tariff
    chosen: bool
    assumed: bool
    """Whether the price is the catalogue's."""
    band: Band | None = None
    """How far the step can be off."""
    ownership: Ownership | None = None

    @property
    def kind(self) -> Kind:
        return self.tariff.kind

    def run(self, stops: float | None = None) -> Outlook:
        """The run where each node is taken back so many times a month, or as the tariff says."""
        site, ahead = self.site.paid(self.tariff, stops), self.ahead
        pool = replace(ahead.pool, site=site, price=self.tariff.price)
        return replace(ahead, pool=pool, losses=losses_of(pool, ahead.num_gpus, ahead.dp))

    def margin(self, run: Outlook) -> float:
        """How much longer the run may last for what limits have to allow for; 1 without a confidence."""
        share = self.ahead.instance.limits.chance
        return 1.0 if share is None else length_quantile(share, self.band, run.spread())

    def gpus(self, run: Outlook) -> int:
        """GPUs that are paid for, spare nodes included."""
        return run.num_gpus + run.spare_nodes * self.site.gpu.gpus_per_node

    def dollars(self, run: Outlook, margin: float = 1.0) -> float:
        """What the run costs if it is longer by so much; without end where it never ends."""
        if not isfinite(run.seconds):
            return inf
        site = self.site.paid(self.tariff)
        return float(site.bill(run.num_gpus, run.seconds * margin, run.losses).total)

    def rent_like(self, other: Paid) -> float:
        """USD per GPU-hour of this run at which it costs as much as paid for in another way."""
        run, theirs = self.run(), other.run()
        return other.dollars(theirs) / (self.gpus(run) * 24 * run.seconds / DAY)


def words(kind: Kind) -> str:
    """A kind as people write it: on demand."""
    return kind.replace("_", " ")


def percent(share: float) -> str:
    """A share, small ones as well: 85%, 0.012%."""
    return f"{100 * share:.3g}%"


def ways_to_pay(ahead: Outlook, site: Site, band: Band | None = None) -> tuple[list[Paid], list[Unpriced]]:
    """Every way to pay that has a price: the problem's, what it offers instead, else the catalogue's."""
    found: list[Paid] = []
    unpriced: list[Unpriced] = []
    for kind in KINDS:
        described = site.pricing and site.pricing.offer_of(kind)
        offer, chosen = described or Offer(kind=kind), kind == site.tariff.kind
        try:
            tariff = site.tariff if chosen else offer.tariff(site.gpu, site.power)
        except Refused as refused:
            text = f"{words(kind).capitalize()}: {refused.found}; `pricing.instead` can say it."
            unpriced.append(Unpriced(kind=kind, text=text))
            continue
        owned = offer.ownership(site.gpu, site.power) if kind == "owned" else None
        given = chosen or offer.price is not None or offer.node is not None
        found.append(Paid(ahead, site, tariff, chosen, not given, band, owned))
    return found, unpriced
