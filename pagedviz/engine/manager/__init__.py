"""What can be asked of a serving engine's cache. Decides and refuses; the rooms below make the changes."""
