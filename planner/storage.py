"""The section `storage:`: what the storage can do, and what is kept on it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, model_validator

from costmodel.run import Column
from costmodel.storage import description
from costmodel.storage.retention import Retention
from hardware.site import Tier, site_storage
from planner import units
from planner.errors import Refused, nearest, shown
from planner.narrowing import one_of
from planner.quantities import Bandwidth, Count, Duration, Fraction, Quantity, Strict

Size = Annotated[float, Quantity(units.size, lambda x: f"{x!r} B", ("500 TB", "2 PB"))]
Kept = Annotated[int, Quantity(lambda n: units.count(n, least=0), int, (5,))]


def _named(kinds: str) -> Any:
    """A validator of a name in the catalogue of storage servers or systems."""

    def read(value: Any) -> Any:
        known = tuple(getattr(site_storage(), kinds))
        if value is not None and value not in known:
            raise Refused(f"found {shown(value)}", ", ".join(known), nearest(value, known))
        return value

    return BeforeValidator(read)


class Servers(Strict):
    """Storage servers of one kind."""

    kind: Annotated[str, _named("servers")]
    """A name of the catalogue."""
    count: Count
    """How many."""
    replicas: Count = 1
    """Copies of each byte."""
    efficiency: Fraction | None = None
    """Share of the servers' sum that the file system delivers."""


class Keep(Strict):
    """Which checkpoints are kept."""

    recent: Kept = 5
    """The last few."""
    every: Duration | None = None
    """One each so often is kept for good."""
    milestones: Kept = 0
    """Named ones."""


class Storage(Strict):
    """What the storage can do. Without the section: what usually stands beside such a cluster."""

    tier: Annotated[Tier | None, BeforeValidator(one_of(("good", "better", "best")))] = None
    """Bandwidth that grows with the cluster, by NVIDIA's guidelines: good, better (the default), best."""
    system: Annotated[str | None, _named("systems")] = None
    """A storage system of the catalogue."""
    servers: Servers | None = None
    """Storage servers of the catalogue."""
    write: Bandwidth | None = None
    """All clients together; `read` beside it."""
    read: Bandwidth | None = None
    """All clients together."""
    capacity: Size | None = None
    """Room, replicas taken off; no limit unless given or known."""
    node_write: Bandwidth | None = None
    """What one training node can send to storage."""
    node_read: Bandwidth | None = None
    """What one training node can take from storage."""
    keep: Keep = Keep()
    """Which checkpoints are kept."""
    load_within: Duration | None = None
    """A restart is to load within this time."""

    @model_validator(mode="after")
    def _described_once(self) -> Storage:
        own = self.write is not None or self.read is not None
        if own and (self.write is None or self.read is None):
            missing = "read" if self.read is None else "write"
            raise Refused(f"{missing} is missing", "write and read together", "", (missing,))
        named = {"tier": self.tier, "system": self.system, "servers": self.servers}
        given = [name for name, value in named.items() if value is not None] + ["write"] * own
        if len(given) > 1:
            found = f"{' and '.join(given)} are given"
            raise Refused(found, "one of tier, system, servers, or write and read", "", (given[1],))
        return self

    def resolved(self, num_nodes: Column) -> description.Storage:
        """In SI beside so many training nodes."""
        usual = self._described(num_nodes)
        return description.Storage(
            usual.write,
            usual.read,
            usual.capacity if self.capacity is None else self.capacity,
            usual.node_write if self.node_write is None else self.node_write,
            usual.node_read if self.node_read is None else self.node_read,
        )

    def _described(self, num_nodes: Column) -> description.Storage:
        facts = site_storage()
        if self.servers is not None:
            server = facts.servers[self.servers.kind]
            given = self.servers
            return description.of_servers(server, given.count, given.replicas, given.efficiency)
        if self.system is not None:
            system = facts.systems[self.system]
            return description.Storage(system.write, system.read, system.capacity)
        if self.write is not None and self.read is not None:
            return description.Storage(self.write, self.read)
        return description.usual_storage(num_nodes, self.tier)

    def retention(self) -> Retention:
        """Which checkpoints are kept."""
        return Retention(self.keep.recent, self.keep.every, self.keep.milestones)
