"""Storage servers, drives and RAID groups for a bandwidth or a room."""

from __future__ import annotations

import numpy as np

from costmodel.run import Column


def servers_for_bandwidth(
    bandwidth: Column, each: Column, efficiency: Column = 1, replicas: Column = 1
) -> Column:
    """Servers (or drives, or groups): ceil(BW/(BW_server*eta)) * replicas; eta of 0.6 to 0.9."""
    return np.ceil(bandwidth / (each * efficiency)) * replicas


def servers_for_room(size: Column, each: Column, replicas: Column = 1) -> Column:
    """Servers that hold so many bytes: ceil(size*replicas/capacity)."""
    return np.ceil(size * replicas / each)
