"""Model cards: found by name, each with a source."""

from __future__ import annotations

import pytest

from costmodel.cards import UnknownModel, card_names, load_card


@pytest.mark.parametrize("name", card_names())
def test_every_card_is_named_after_its_file_and_says_where_it_comes_from(name: str) -> None:
    card = load_card(name)
    assert card.name == name
    assert "arXiv" in card.source or "config.json" in card.source or "stand-in" in card.source


def test_the_case_of_a_name_does_not_matter() -> None:
    assert load_card("DeepSeek-V3") == load_card("deepseek-v3")


def test_a_typo_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(UnknownModel, match="did you mean 'llama-2-70b'") as caught:
        load_card("llama2-70b")
    assert caught.value.nearest == "llama-2-70b"


def test_a_name_like_no_other_is_answered_with_all_names() -> None:
    with pytest.raises(ValueError, match="known: deepseek-v2, ") as caught:
        load_card("xyzzy")
    assert "did you mean" not in str(caught.value)
