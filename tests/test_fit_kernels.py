"""The refit script finds the constants that made a table."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from hardware.catalogue import load_accelerator

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "fit_kernels.py"


def test_a_link_of_half_the_speed_is_found_in_its_measurements(tmp_path: Path) -> None:
    curve = load_accelerator("H100").curves.collectives["all_gather"][8]
    lines = ["gpu,gpus,nodes,op,algo,kind,message_bytes,time_us"]
    for power in range(10, 34):
        sent = 2**power * 7 / 8
        seconds = 2 * curve.alpha + sent / (curve.bandwidth / 2) + curve.root * sent**0.5
        lines.append(f"H100,8,1,all_gather,auto,measured,{2**power},{seconds * 1e6}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines))
    command = [sys.executable, str(SCRIPT), "collective", str(table), "--gpu", "H100"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {
        line.split()[0]: float(line.split()[-1])
        for line in printed.splitlines()
        if "e-" in line or "e+" in line
    }
    assert found["alpha"] == pytest.approx(2 * curve.alpha, rel=0.02)
    assert found["bandwidth"] == pytest.approx(curve.bandwidth / 2, rel=0.02)
    assert found["root"] == pytest.approx(curve.root, rel=0.1)
