"""Pieces of the screen that know no page, no run and no probe: what they show is passed to them."""
