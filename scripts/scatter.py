"""The scatter plot of docs/accuracy.md: predicted against measured step time, as SVG."""

from __future__ import annotations

import numpy as np
from measures import Scored, timed

SIZE, MARGIN = 560, 48
COLOURS = {
    "NVIDIA dense": "#76b900",
    "MoE": "#d1495b",
    "older and FSDP": "#3066be",
    "vtrain-multi": "#8d6a9f",
    "vtrain-single": "#b8b8b8",
}
ORDER = ("vtrain-single", "vtrain-multi", "older and FSDP", "NVIDIA dense", "MoE")


def scatter(table: list[Scored]) -> str:
    """One dot a configuration on logarithmic axes, and the diagonal."""
    points = timed(table, (1, 2))
    seconds = np.array([[each.row.step_time, each.estimate.step_time] for each in points], dtype=float)
    low, high = np.floor(np.log10(seconds.min())), np.ceil(np.log10(seconds.max()))

    def at(value: float) -> float:
        return MARGIN + (np.log10(value) - low) / (high - low) * (SIZE - 2 * MARGIN)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{SIZE}" height="{SIZE}" font-family="sans-serif" font-size="12">',
        f'<rect width="{SIZE}" height="{SIZE}" fill="white"/>',
    ]
    for power in range(int(low), int(high) + 1):
        x = at(10.0**power)
        y = SIZE - x
        parts += [
            f'<path d="M{x:.1f} {MARGIN}V{SIZE - MARGIN}M{MARGIN} {y:.1f}H{SIZE - MARGIN}" stroke="#e5e5e5"/>',
            f'<text x="{x:.1f}" y="{SIZE - MARGIN + 18}" text-anchor="middle">{10.0**power:g} s</text>',
            f'<text x="{MARGIN - 6}" y="{y + 4:.1f}" text-anchor="end">{10.0**power:g}</text>',
        ]
    parts.append(
        f'<path d="M{MARGIN} {SIZE - MARGIN}L{SIZE - MARGIN} {MARGIN}" stroke="#444" stroke-dasharray="4 3"/>'
    )
    for kind in ORDER:
        dots = [
            f"M{at(x):.1f} {SIZE - at(y):.1f}h0"
            for each, (x, y) in zip(points, seconds, strict=True)
            if each.kind == kind
        ]
        parts.append(
            f'<path d="{"".join(dots)}" stroke="{COLOURS[kind]}" stroke-width="4" stroke-linecap="round" '
            f'stroke-opacity="0.6" fill="none"/>'
        )
    for place, kind in enumerate(reversed(ORDER)):
        y = MARGIN + 14 + 17 * place
        parts.append(f'<circle cx="{MARGIN + 14}" cy="{y - 4}" r="4" fill="{COLOURS[kind]}"/>')
        parts.append(f'<text x="{MARGIN + 24}" y="{y}">{kind}</text>')
    parts.append(f'<text x="{SIZE / 2}" y="{SIZE - 8}" text-anchor="middle">measured step time</text>')
    parts.append(
        f'<text x="14" y="{SIZE / 2}" text-anchor="middle" transform="rotate(-90 14 {SIZE / 2})">predicted step time</text>'
    )
    return "\n".join([*parts, "</svg>", ""])
