from collections.abc import Iterator

from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import FlashAndPaged, LazyRescale, Lens
from pagedviz.scenario.settings import CacheConfig

TITLE = "Flash and paged"
CLAIM = "FlashAttention tiles the computation, PagedAttention the storage: one loop, one online softmax, over either."
SEED = 36
CACHE = CacheConfig(num_blocks=12, host_blocks=0, scatter=True)

TILE = 8
SHARPNESS = 6
THRESHOLD = 8
WORDS = (
    "in the beginning was the word and the word went round the world before the truth had its boots on and so it goes"
).split()


def lesson(run: Run) -> Iterator[Page]:
    size, dim = run.cache.block_size, run.cache.head_dim
    run.add("A", WORDS[: run.random.choice([17, 18, 19, 20])])
    length, table = run.state.seq_len("A"), run.state.block_tables["A"]
    yield Page(
        "Tiles and blocks",
        f"A has {length} tokens in {len(table)} blocks. The kernel takes a block a turn, and carries m, l and an accumulator "
        "from turn to turn: that was *Attention through the table*.\n\n"
        "FlashAttention has the very same loop, over keys and values that lie side by side. A **tile** is the piece that "
        "one turn takes: as many rows as fit into the fast memory on the chip. It says how to *compute*; a block says how "
        "to *store*.",
        Question(
            f"One more word comes. How many turns does the loop then take over tiles of {TILE}?",
            answer=lambda after: len(after.found["flash"]),
            explain=lambda after: (
                f"ceil({after.found['seq_len']} / {TILE}) = {len(after.found['flash'])} tiles, while the table has "
                f"{len(after.found['paged'])} blocks of {size}. A tile may be several blocks, or a part of one."
            ),
            unit="turns",
            probe=FlashAndPaged("A", 0, 0, TILE),
        ),
    )

    run.append("A", [WORDS[length]])
    yield Page(
        "Another cut, another rounding",
        f"Below, one kernel ran twice: through the table, and over a copy of the same K and V in order, in tiles of {TILE}. "
        "Its last m is the same, for a maximum is not rounded. l and the output were **rounded** at other places, so a few "
        "last digits may differ.",
        Question(
            f"One more word. Now the tiles have {size} tokens, as the blocks do. After how many turns do m or l differ in "
            "any bit?",
            answer=lambda after: int(after.found["turns_that_differ"]),
            explain=lambda after: (
                f"Of {len(after.found['paged'])} turns, {after.found['turns_that_differ']}; and of the "
                f"{dim} numbers of the output, {after.found['numbers_that_differ']} differ. The table changes where a "
                "number is read from, not which numbers meet, nor in what order."
            ),
            unit="turns",
            probe=FlashAndPaged("A", 0, 0, size),
        ),
        shows=FlashAndPaged("A", 0, 0, TILE),
    )

    run.append("A", [WORDS[length + 1]])
    yield Page(
        "What a tile saves",
        _reads(run.state.seq_len("A"), dim, size),
        Question(
            "One more word. Two programs now share A's blocks, in whole blocks, the first taking no fewer. How many "
            "blocks does the second take?",
            answer=lambda after: len(after.found["splits"][1]["turns"]),
            explain=lambda after: (
                f"Half of {len(after.after.block_tables['A'])} blocks, rounded up, is {_turns(after, 0)}; "
                f"{_turns(after, 1)} are left: {', '.join(str(t['block']) for t in after.found['splits'][1]['turns'])}."
            ),
            unit="blocks",
            probe=Lens("A", 0, 0, 2),
        ),
        shows=FlashAndPaged("A", 0, 0, size),
    )

    run.append("A", [WORDS[length + 2]])
    yield Page(
        "Two programs, one query",
        "FlashAttention-2 shares a prompt's *queries* out among warps and programs, for each query's softmax is its own. "
        "A decoding sequence has one query, so most of a GPU would idle.\n\n"
        "**Flash-Decoding** shares out the *keys* instead. Each program has a softmax over its part only, and says besides "
        "how much weight that part had: lse = m + log2(l), the *log-sum-exp*. A second, small kernel joins the parts, each "
        "weighed by 2^lse.\n\n"
        "Below are both parts, and what was joined from them.",
        shows=Lens("A", 0, 0, 2),
    )

    run.append("A", [WORDS[length + 3]])
    yield Page(
        "What is a rescale?",
        "Whenever a turn brings a larger m, all that was summed is multiplied by 2^(old m − new m): a **rescale**. On a "
        "GPU whose multiplications of matrices are fast enough, everything else begins to count, and so does this.\n\n"
        f"To see many, take sharp scores: below they are multiplied by {SHARPNESS}. Where m grew there was a rescale, the "
        "first turn apart, which had nothing to scale.\n\n"
        f"FlashAttention-4 leaves m where it is while the true maximum is above it by at most {THRESHOLD} powers of 2, and "
        "rescales to the true one when it is more. Add up the growth since m was last set.",
        Question(
            "B is forked from A: it names the same blocks, and its newest token asks with the same query. How many "
            "rescales does the lazy kernel do for B, query head 0?",
            answer=lambda after: int(after.found["done"]),
            explain=_rescales,
            unit="rescales",
            probe=LazyRescale("B", 0, 0, SHARPNESS, THRESHOLD),
        ),
        shows=LazyRescale("A", 0, 0, SHARPNESS, 0),
    )

    run.fork("A", "B")
    yield Page(
        "Another head",
        "B's query head 1 asks the same keys another question, so its m grows at other turns. Nothing is lost by skipping: "
        "any m gives the same quotient acc / l. A new m only keeps 2^(score − m) from overflowing, and 2^"
        f"{THRESHOLD} = {2**THRESHOLD} is far from that.",
        Question(
            "C is forked from B. How many rescales does the lazy kernel skip for C, query head 1?",
            answer=lambda after: int(after.found["skipped"]),
            explain=_rescales,
            unit="rescales",
            probe=LazyRescale("C", 0, 1, SHARPNESS, THRESHOLD),
        ),
        shows=LazyRescale("B", 0, 1, SHARPNESS, 0),
    )

    run.fork("B", "C")
    yield Page(
        "Equal within the tolerance",
        "Both loops ran over C's blocks, and below they stand side by side: the true m and the one in use, with the l that "
        "belongs to each. l is larger where m stayed behind, and so is the accumulator; the **quotient** is the same but "
        "for rounding.\n\n"
        "None of it needed to know that the keys lie in pages, nor that A and B name the same ones.",
        shows=LazyRescale("C", 0, 1, SHARPNESS, THRESHOLD),
    )


def _reads(tokens: int, dim: int, size: int) -> str:
    """The numbers that attention reads and writes for a prompt, counted by walking both loops."""
    scores = 2 * tokens * dim + tokens * tokens  # reads Q and K, writes the scores
    softmax = 2 * tokens * tokens  # reads scores, writes weights
    plain = scores + softmax + tokens * tokens + 2 * tokens * dim  # reads weights and V, writes the output
    return (
        "So a tile and a block of one size are one computation; the table below says how equal. Why tiles at all, then? "
        "For the **traffic** of a prompt, whose tokens all ask at once.\n\n"
        f"Take {tokens} queries over {tokens} keys of {dim} numbers, N and d. With all scores in memory, {plain:,} numbers "
        f"are read or written: 4 N² + 4 N d. In tiles of {size} queries no score leaves the chip: "
        f"{_in_tiles(tokens, dim, size):,}. In tiles of {TILE}: {_in_tiles(tokens, dim, TILE):,}, for K and V then pass by "
        f"{-(-tokens // TILE)} times, not {-(-tokens // size)}. If M numbers fit on the chip, a tile holds about M / d "
        "queries, and N² d² / M replaces N².\n\n"
        "Training computes the scores again on the way back: cheaper than to have kept them. And a decoding token reads "
        f"each key and value once either way, {2 * tokens * dim:,} numbers here."
    )


def _in_tiles(tokens: int, dim: int, tile: int) -> int:
    moved = 0
    for first in range(0, tokens, tile):
        moved += 2 * min(tile, tokens - first) * dim  # reads a tile of queries, writes its outputs
        moved += 2 * tokens * dim  # and reads all keys and values
    return moved


def _turns(after: After, split: int) -> int:
    return len(after.found["splits"][split]["turns"])


def _rescales(after: After) -> str:
    found = after.found
    plain = [now - before for before, now in zip(found["plain_m"], found["plain_m"][1:], strict=False) if now > before]
    used = [round(m, 2) for m in found["m"]]
    grown = ", ".join(f"{step:.2f}" for step in plain) or "nothing"
    return (
        f"The true m grew by {grown}. The m in use was {', '.join(f'{m:g}' for m in used)}: {found['done']} done and "
        f"{found['skipped']} skipped, {len(plain)} in all, as the kernel counted itself."
    )
