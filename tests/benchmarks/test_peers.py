"""What the adapters tell a peer is the same batch that this project's kernel gets."""

import pytest
import torch

from benchmarks.peers import flashinfer_paged, flex_paged


def batch(lens, block_size):
    """Tables of scattered blocks, with -1 past each row's end: tables, seq_lens, num_blocks."""
    columns = [-(-n // block_size) for n in lens]
    order = torch.randperm(sum(columns) + 3, generator=torch.Generator().manual_seed(0)).to(torch.int32).tolist()
    tables = torch.full((len(lens), max(columns)), -1, dtype=torch.int32)
    for row, count in zip(tables, columns, strict=True):
        row[:count] = torch.tensor([order.pop() for _ in range(count)])
    return tables, torch.tensor(lens, dtype=torch.int32), sum(columns) + 3


@pytest.mark.parametrize(("new", "cached", "block_size"), [(1, (5, 32), 16), (150, (0, 70), 16), (130, (200, 3), 32)])
def test_flex_attention_sees_each_slot_of_the_past_once_and_no_other(new, cached, block_size):
    tables, seq_lens, num_blocks = batch([new + before for before in cached], block_size)
    mask = flex_paged._mask(tables, seq_lens, new, block_size, num_blocks)
    for seq, before in enumerate(cached):
        seen = torch.zeros(new, num_blocks * block_size, dtype=torch.int32)
        for tile, rows in enumerate(torch.arange(new).split(flex_paged.QUERY_TILE)):
            for block in mask.full_kv_indices[seq, 0, tile, : mask.full_kv_num_blocks[seq, 0, tile]].tolist():
                seen[rows, block * block_size : (block + 1) * block_size] += 1
            for block in mask.kv_indices[seq, 0, tile, : mask.kv_num_blocks[seq, 0, tile]].tolist():
                slots = torch.arange(block * block_size, (block + 1) * block_size)
                seen[rows[:, None], slots] += mask.mask_mod(seq, 0, rows[:, None], slots).int()
        wanted = torch.zeros_like(seen)
        for position in range(before + new):
            slot = int(tables[seq, position // block_size]) * block_size + position % block_size
            wanted[:, slot] = (position <= before + torch.arange(new)).int()
        assert torch.equal(seen, wanted)


def test_flashinfer_gets_the_used_entries_of_each_row_and_the_tokens_of_its_last_block():
    tables = torch.tensor([[7, 2, -1], [4, 1, 3]], dtype=torch.int32)
    begins, entries, last = flashinfer_paged._pages(tables, torch.tensor([6, 12]), 4)
    assert (begins.tolist(), entries.tolist(), last.tolist()) == ([0, 2, 5], [7, 2, 4, 1, 3], [2, 4])
