"""The device pool, its free blocks and hashes, the sequences with their tables, and each atomic change of them."""
