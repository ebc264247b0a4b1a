from collections.abc import Iterator

from pagedviz.lesson import Page, Question, Run
from pagedviz.scenario.settings import CacheConfig

TITLE = "The block table"
CLAIM = "A sequence's blocks lie anywhere; its block table says where."
SEED = 1784  # shuffles the pool so that 7, 1 and 3 are handed out first, as in the picture of the PagedAttention paper
CACHE = CacheConfig(scatter=True)


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    queue = run.state.free_blocks
    yield Page(
        "A pool of blocks",
        f"This is the memory for keys and values, cut into **{run.cache.num_blocks} blocks** of **{size} tokens**. "
        "Nobody owns one yet, and an empty slot is hatched: what it holds means nothing.\n\n"
        "One block id names the same slab in every layer and every KV head, so one picture serves for all of them.\n\n"
        f"The **free queue** says in which order blocks go out: {queue[0]}, then {queue[1]}, then {queue[2]}. "
        "The order is scrambled, as in any pool that has been in use for a while.",
        Question(
            "Seven words arrive. How many blocks will they take?",
            answer=lambda after: len(after.after.block_tables["A"]),
            explain=lambda after: (
                f"ceil(7 / {size}) = {len(after.after.block_tables['A'])}. The last of them is only partly filled."
            ),
            unit="blocks",
        ),
    )

    run.add("A", "Four score and seven years ago our")
    table = run.state.block_tables["A"]
    yield Page(
        "Logical and physical",
        f"To A, its words stand side by side: logical block 0, then logical block 1. In the pool they are in blocks "
        f"**{table[0]}** and **{table[1]}**, wherever there was room.\n\n"
        f"The list [{table[0]}, {table[1]}] is A's **block table**: entry j is the physical block of logical block j. "
        "Point at any block to see its other end.\n\n"
        "A prompt is there all at once, so its blocks are taken first and its words written together, in one launch: "
        "**prefill**. From here on words come one by one.\n\n"
        "Position p of a sequence is slot `table[p // block_size] * block_size + p % block_size`. Positions count from 0.",
        Question(
            "The eighth word comes, at position 7. Into which slot of the pool?",
            answer=lambda after: int(after.first("TokenWritten").slot),
            explain=lambda after: (
                f"7 // {size} = {7 // size} and table[{7 // size}] = {after.before.block_tables['A'][7 // size]}, so the "
                f"slot is {after.before.block_tables['A'][7 // size]} × {size} + {7 % size} = "
                f"{after.first('TokenWritten').slot}."
            ),
            unit="slot",
        ),
    )

    run.append("A", "fathers")
    yield Page(
        "Full",
        f"“fathers” took the last slot of block {table[1]}: no block was needed. Now both blocks are full, so there is no "
        "dashed slot any more. The next word needs a block, and it is taken only when that word comes.",
        Question(
            "The ninth word comes. Which physical block does A take?",
            answer=lambda after: int(after.first("BlockAllocated").block),
            explain=lambda after: (
                f"The head of the free queue was {after.before.free_blocks[0]}. Nothing about A's other blocks matters: "
                "the new one need not be their neighbour."
            ),
            unit="block id",
        ),
    )

    run.append("A", "brought")
    empty = size * len(run.state.block_tables["A"]) - run.state.seq_len("A")
    yield Page(
        "Less than one block is wasted",
        f"A holds {len(run.state.block_tables['A'])} blocks and {run.state.seq_len('A')} tokens, so {empty} slots are "
        "empty. That is all that paging wastes: the rest of each sequence's last block, and never a whole block.",
        Question(
            "Four more words come, one by one. How many of them fit before A takes another block?",
            answer=lambda after: [event.kind for event in after.events].index("BlockAllocated"),
            explain=lambda after: (
                f"Block {after.before.block_tables['A'][-1]} had {empty} empty slots, so {empty} words fit and the next "
                f"took block {after.first('BlockAllocated').block}."
            ),
            unit="words",
        ),
    )

    for word in ("forth", "on", "this", "continent"):
        run.append("A", word)
    table = run.state.block_tables["A"]
    yield Page(
        "Who reads the table",
        f"A's table is [{', '.join(map(str, table))}], and every step so far was checked: the kernel walked exactly this "
        "table and gave what plain attention gives.\n\n"
        "An operating system has a memory unit that turns virtual into physical addresses behind the program's back. "
        "Here there is none: the **kernel itself** reads the table, entry by entry, as the next lesson shows.",
    )
