"""The sections of the page, in the order in which a reader asks."""
