from collections.abc import Iterator

from pagedviz.lesson import Page, Question, Run
from pagedviz.probe import Launch
from pagedviz.scenario.settings import CacheConfig

TITLE = "Inside the worker"
CLAIM = "A step of a serving engine is one launch; four small tensors tell it who asks, who writes, and where."
SEED = 21
CACHE = CacheConfig(num_blocks=14, host_blocks=0, scatter=True, profile="vllm-v1")

WORDS = "it is a truth universally acknowledged that a single man in possession of a good fortune".split()


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    run.add("A", WORDS[: run.random.choice([9, 10])])
    run.add("B", "call me")
    run.append("A", WORDS[10:11])
    row = run.state.block_tables["A"]
    yield Page(
        "A row for each sequence",
        "An engine's **worker** is the process that has the GPU. Each step it hands the kernel tensors, and below the "
        "stage are those of this step, as they were given.\n\n"
        f"`block_tables` has one row a sequence. A's is {list(row)}, and B has one block only. A tensor has no short "
        "rows, so the rest of B's is 0: the **null block**, which nobody ever owns. It is in the pool so that padding "
        "may name it. `seq_lens` says where each row ends, and the kernel reads no entry behind that.",
        Question(
            f"B writes until it has {size + 1} tokens. What is then entry 1 of its row?",
            answer=lambda after: int(after.found["block_tables"][1][1]),
            explain=lambda after: (
                f"The fifth token needs a block, and {after.before.free_blocks[0]} was the head of the free queue. The row "
                f"is now {after.found['block_tables'][1]}: what is behind entry 1 is padding still."
            ),
            unit="block id",
            probe=Launch(),
        ),
        shows=Launch(),
    )

    for word in ("Ishmael", "some", "years"):
        run.append("B", word)
    length = run.state.seq_len("A")
    yield Page(
        "Where new tokens go",
        "Before it attends, a launch stores each token's K and V. `slot_mapping` says where: one **slot** a token, block × "
        f"{size} + offset. The table would say it too; the worker works it out once for all layers.\n\n"
        "A -1 stores nothing. In vLLM it marks padding, where a batch is filled up to a size that a CUDA graph was "
        "captured for. Here it also stands for a sequence that waits: its newest token is stored already, and asks "
        "again.",
        Question(
            f"A writes its next token, at position {length}. What is A's entry of slot_mapping?",
            answer=lambda after: int(after.found["slot_mapping"][0]),
            explain=lambda after: (
                f"{length} // {size} = {length // size}, and entry {length // size} of A's row is "
                f"{after.found['block_tables'][0][length // size]}: {after.found['block_tables'][0][length // size]} × "
                f"{size} + {length % size} = {after.found['slot_mapping'][0]}. B's entry is "
                f"{after.found['slot_mapping'][1]}."
            ),
            unit="slot",
            probe=Launch(),
        ),
        shows=Launch(),
    )

    run.append("A", WORDS[11:12])
    prompt = run.random.choice([5, 6, 7])
    yield Page(
        "Who owns which rows of q",
        "So far everybody asked with one token, so row i of q was sequence i's. A prompt asks with all of its tokens at "
        "once, and then rows must be counted out. `query_start_loc` does it: sequence i has the rows from entry i up to, "
        "not including, entry i + 1. It is a list of **running sums** with a 0 in front.\n\n"
        f"It is [{', '.join(map(str, range(len(run.state.tokens) + 1)))}] now.",
        Question(
            f"C arrives with a prompt of {prompt} words, while A and B ask with one token each. What is its last entry?",
            answer=lambda after: int(after.found["query_start_loc"][-1]),
            explain=lambda after: (
                f"query_start_loc is {after.found['query_start_loc']}: 1 + 1 + {prompt} = "
                f"{after.found['query_start_loc'][-1]} rows of q in all, C's from {after.found['query_start_loc'][2]} on."
            ),
            unit="rows",
            probe=Launch(),
        ),
        shows=Launch(),
    )

    run.add("C", WORDS[:prompt])
    newcomer = run.random.choice([2, 3, 4])
    yield Page(
        "A mixed batch",
        f"One launch of `paged_prefill` served all three: A and B decode, and C's prompt of {prompt} is **prefilled** beside "
        "them. For each row the kernel finds its sequence in query_start_loc, its last visible key from seq_lens, and its "
        "blocks in block_tables. Decoding is the case of one row a sequence.\n\n"
        "So an engine need not stop the decodes for a prompt. A long prompt would hold them up all the same, and "
        "*chunked prefill* hands it over in pieces.",
        Question(
            f"D arrives with {newcomer} words, while A, B and C ask with one token each. How many entries has slot_mapping?",
            answer=lambda after: len(after.found["slot_mapping"]),
            explain=lambda after: (
                f"It is {after.found['slot_mapping']}: one entry for each row of q, 1 + 1 + 1 + {newcomer}. "
                f"{sum(slot >= 0 for slot in after.found['slot_mapping'])} of them are slots; the other tokens are in the "
                "cache already."
            ),
            unit="entries",
            probe=Launch(),
        ),
        shows=Launch(),
    )

    run.add("D", WORDS[-newcomer:])
    used = sum(len(table) for table in run.state.block_tables.values())
    cells = len(run.state.block_tables) * max(len(table) for table in run.state.block_tables.values())
    yield Page(
        "Small tensors, one launch",
        f"block_tables has {cells} entries for {used} blocks here; the other {cells - used} are padding. Whatever the batch "
        "is like, the worker changes these few integers and launches the same kernel. No key or value moves for it: the "
        "tables say where they lie.",
        shows=Launch(),
    )
