"""What a kernel computed for the newest token of a sequence, and what a launch was given."""
