"""Energy: nodes draw what was measured, data centres add to it, grids emit; and the section `power:`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from costmodel.energy import NodeWatts, node_watts, run_energy
from hardware.catalogue import accelerator_names, load_accelerator
from hardware.site import site_power
from planner.complaints import invalid_input
from planner.errors import InvalidInput
from planner.power import Power
from planner.yaml_file import parse

HOUR, DAY = 3600.0, 86400.0
PLAIN = {"pue": 1.2, "grams_per_kwh": 400.0, "price_per_kwh": 0.1}


def read(text: str) -> Power:
    try:
        return Power.model_validate(parse(text, "power"))
    except ValidationError as error:
        raise invalid_input(error, "power") from None


def test_a_busy_h100_node_draws_what_was_measured_at_most() -> None:
    busy = node_watts(load_accelerator("H100"), utilisation=1.0)
    assert busy.training == pytest.approx(8400)
    assert node_watts(load_accelerator("H100")).training < 8400


def test_training_draws_three_quarters_of_the_rated_power() -> None:
    """Newkirk et al. (arXiv:2506.14551): compute-bound training at 76 % of 10.2 kW."""
    assert node_watts(load_accelerator("H100")).training / 10200 == pytest.approx(0.76, abs=0.03)


@pytest.mark.parametrize("name", accelerator_names())
def test_no_node_draws_more_than_it_is_rated_for(name: str) -> None:
    gpu = load_accelerator(name)
    known = site_power().node_of(gpu.name)
    watts = node_watts(gpu, utilisation=1.0)
    assert gpu.gpus_per_node * gpu.power.tdp <= watts.training * (1 + 1e-12)
    assert watts.idle < watts.training
    if known is not None:
        assert watts.training <= known.rated * gpu.gpus_per_node / known.gpus * (1 + 1e-9)


def test_nodes_name_gpus_of_the_catalogue() -> None:
    assert {name for node in site_power().nodes for name in node.gpu_names} <= set(accelerator_names())


def test_a_kilowatt_for_a_day_is_24_kilowatt_hours_and_the_data_centre_adds_to_it() -> None:
    used = run_energy(NodeWatts(1000, 300), num_nodes=1, training=DAY, **PLAIN)
    assert used.kwh == pytest.approx(24 * 1.2)
    assert used.tonnes == pytest.approx(24 * 1.2 * 400 / 1e6)
    assert used.dollars == pytest.approx(24 * 1.2 * 0.1)


def test_standing_still_and_spare_nodes_draw_less() -> None:
    watts = NodeWatts(8000, 3000)
    used = run_energy(watts, num_nodes=10, training=9 * HOUR, standing=HOUR, spare_nodes=2, **PLAIN)
    assert used.kwh == pytest.approx((10 * (8 * 9 + 3) + 2 * 3 * 10) * 1.2)


def test_gpt_3_took_what_was_published() -> None:
    """1,287 MWh and 552 t on 10,000 V100 in 14.8 days at 330 W a GPU, PUE 1.10 (arXiv:2104.10350, Table 4)."""
    used = run_energy(
        NodeWatts(8 * 330, 8 * 100),
        num_nodes=1250,
        training=14.8 * DAY,
        pue=1.10,
        grams_per_kwh=429,
    )
    assert used.kwh == pytest.approx(1_287_000, rel=0.01)
    assert used.tonnes == pytest.approx(552, rel=0.01)


@given(nodes=st.integers(1, 5000), days=st.floats(0.1, 200), pue=st.floats(1.0, 2.0))
def test_energy_is_columns_and_proportional(nodes: int, days: float, pue: float) -> None:
    args = {"pue": pue, "grams_per_kwh": 400.0}
    column = run_energy(
        NodeWatts(8000, 3000), num_nodes=np.array([nodes, 2 * nodes]), training=days * DAY, **args
    )
    alone = run_energy(NodeWatts(8000, 3000), num_nodes=nodes, training=days * DAY, **args)
    assert column.kwh == pytest.approx(np.array([1, 2]) * alone.kwh)


# --- the section


def test_without_keys_it_is_a_new_data_centre_on_the_worlds_grid() -> None:
    section = read("{}")
    assert (section.pue, section.electricity, section.carbon) == (1.2, 0.10, 475)
    assert section.watts(load_accelerator("H100")) == node_watts(load_accelerator("H100"))


def test_it_is_read_with_its_units() -> None:
    section = read("{pue: 1.3, electricity: 60 USD/MWh, carbon: 0.25 kgCO2/kWh, node: 7.5 kW}")
    assert (section.pue, section.electricity, section.carbon) == (1.3, 0.06, 250)
    assert section.watts(load_accelerator("H20")).training == 7500
    assert Power.model_validate(section.model_dump(mode="json", exclude_unset=True)) == section


def test_a_country_is_its_grid() -> None:
    assert read("carbon: fra").carbon == 56


@pytest.mark.parametrize(
    ("text", "path", "said"),
    [
        ("pue: 0.9", "pue", "1 or more"),
        ("carbon: FRN", "carbon", "'FRA'"),
        ("carbon: 400", "carbon", "gCO2/kWh"),
        ("electricity: 0.1", "electricity", "USD/kWh"),
        ("node: 8.4", "node", "8.4 kW"),
        ("utilization: 1", "utilization", "'utilisation'"),
    ],
)
def test_mistakes_are_named(text: str, path: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(text)
    assert caught.value.path == path
    assert said in str(caught.value)
