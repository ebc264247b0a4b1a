"""Moving keys and values without computing with them: into slots, from block to block, out of the cache and back.

`store_kv.py` writes new tokens (`quantize.py` makes 8-bit numbers of them); `copy_blocks.py` and `gather_blocks.py`
move whole blocks, which `block_rows.py` sees as rows of integers.
"""
