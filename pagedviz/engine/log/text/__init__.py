"""How the screen says what happened: docstrings with their fields filled in."""
