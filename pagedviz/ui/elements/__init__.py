"""Pieces of the screen that know no page and no run: what they show is passed to them."""
