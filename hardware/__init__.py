"""Facts about accelerators, links, networks and prices, each with its source."""
