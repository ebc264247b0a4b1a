from collections.abc import Iterator

from pagedviz.lesson import Page, Question, Run
from pagedviz.scenario import CacheConfig

TITLE = "Attention through the table"
CLAIM = "The kernel walks the table block by block and gets what dense attention gives, within rounding."
SEED = 3
CACHE = CacheConfig(num_blocks=10, scatter=True)

WORDS = "the cat sat on a mat and the dog lay by the door".split()


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    first = run.random.choice([6, 7])  # another seed may give another length
    run.add("A", WORDS[:first])
    table = run.state.block_tables["A"]
    yield Page(
        "One query, many blocks",
        f"A has {first} tokens in blocks {' and '.join(map(str, table))}. The newest one asks its **query** of every key "
        "so far, its own included, and sums the values by how well the keys answer. Only K and V are cached: a query is "
        "used once.\n\n"
        "The kernel never sees A in one piece. It reads entry 0 of the table, loads that block's keys and values, then "
        "entry 1, and so on. One turn of its **loop** is one block here.",
        Question(
            f"Three more words come, one by one, and make {first + 3} tokens. How many turns does the loop then take for the newest one?",
            answer=lambda after: len(after.after.block_tables["A"]),
            explain=lambda after: (
                f"ceil({first + 3} / {size}) = {len(after.after.block_tables['A'])}: one turn for each entry of the table "
                f"[{', '.join(map(str, after.after.block_tables['A']))}]. Entries past the end are never read."
            ),
            unit="turns",
        ),
    )

    for word in WORDS[first : first + 3]:
        run.append("A", [word])
    filled = run.state.filled("A", len(run.state.block_tables["A"]) - 1)
    yield Page(
        "What is in the empty slots?",
        f"The last block holds {filled} of {size} tokens, yet the turn for it has {size} lanes, one a slot. What is in the "
        "other slots? Whatever was there before. Here it is **NaN**, put there on purpose: one NaN that slips in makes "
        "the whole output NaN, and the check beside the picture turns red.\n\n"
        "So the kernel **masks** such a lane twice: neither its key nor its value is loaded, because 0 × NaN is still "
        "NaN, and its *score* becomes minus infinity, so that it weighs nothing.",
        Question(
            "One more word is written. How many lanes of the last block are masked then?",
            answer=lambda after: len(after.after.block_tables["A"]) * after.after.block_size - after.after.seq_len("A"),
            explain=lambda after: (
                f"{len(after.after.block_tables['A'])} blocks × {size} slots − {after.after.seq_len('A')} tokens = "
                f"{len(after.after.block_tables['A']) * size - after.after.seq_len('A')} lanes without a token of A."
            ),
            unit="lanes",
        ),
    )

    run.append("A", WORDS[first + 3 : first + 4])
    yield Page(
        "A softmax over all blocks",
        "Does each block have a softmax of its own? No. The loop carries three numbers from block to block: the largest "
        "score so far **m**, the sum **l** of exp(score − m), and the same sum weighted by the values. When a block "
        "brings a larger m, what was summed before is scaled down to it.\n\n"
        "Only after the last block is there one division by l. So the weights of *all* blocks together sum to 1, and no "
        "block's own weights do unless it is the only one: see *Attention weights* below the stage.",
        Question(
            "B arrives with a prompt of three words, and one launch serves both. How many table entries does it read for B?",
            answer=lambda after: len(after.after.block_tables["B"]),
            explain=lambda after: (
                f"B's 3 tokens are in one block, {after.after.block_tables['B'][0]}, so its weights do sum to 1. A's "
                f"{len(after.after.block_tables['A'])} entries are read in the same launch, by other programs."
            ),
            unit="entries",
        ),
    )

    run.add("B", "hello over there")
    yield Page(
        "Is it exact?",
        "The numbers at the right compare the kernel with dense attention in float64, over a plain log of every key and "
        "value that knows nothing of blocks. They differ by **rounding** only: the kernel adds in another order, in "
        "float32. The tolerance is 1e-5, in every layer, for every sequence, after every step.\n\n"
        "In the last step each of B's words asked of itself and of the words before it, and A's newest word asked too: "
        "**prefill** and **decode** in one launch, every row of it compared.",
    )
