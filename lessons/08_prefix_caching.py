from collections.abc import Iterator

from pagedviz.engine.log.events.blocks import BlockEvicted, BlockHit, SequenceAdded
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.log.text.sentences import count
from pagedviz.lesson import After, Page, Question, Run, free_queue, listed
from pagedviz.probe import UnchainedHit
from pagedviz.scenario.settings import CacheConfig

TITLE = "Prefix caching"
CLAIM = "A full block is found again by a hash of its tokens and of all before them; without these it would be wrong."
SEED = 8
CACHE = CacheConfig(num_blocks=14, host_blocks=0, profile="vllm-v1", prefix_caching=True, scatter=True)

PROMPT = "you are a patient teacher of mathematics . answer in short plain sentences".split()
# The words of B behind so many of A's words.
OTHERWISE = {5: "who jokes", 6: "physics", 9: "every child", 10: "verse"}
MIDDLE = slice(4, 12)  # the second and third block of the prompt
OTHER_PREFIX = "she was a strict".split()
UNCHAINED = UnchainedHit("D", "A", 1)


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    run.add("A", PROMPT)
    common = run.random.choice(list(OTHERWISE))
    yield Page(
        "A full block gets a name",
        f"A's {len(PROMPT)} tokens were computed once. Many requests will begin with them, and their K and V need not be "
        "computed again, if they can be **found**.\n\n"
        f"So each full block gets a **hash**: a number made of its {size} tokens *and of the hash of the block before*. "
        f"A's are {_chain(run.state, 'A')}. Each holds the one before in it, so they make a **chain**. Block "
        f"{run.state.block_tables['A'][-1]} is not full and has none.",
        Question(
            f"B arrives. Its first {common} words are A's, then it goes on otherwise. How many of B's tokens are found?",
            answer=_hits,
            explain=lambda after: (
                f"{common} // {size} = {count(common // size, 'whole block')} of {size}: B names "
                f"{_blocks(after, BlockHit)}. Only whole blocks have a hash, so "
                f"{count(common - _hits(after), 'common token')} more must be computed again."
            ),
            unit="tokens",
        ),
    )

    run.add("B", [*PROMPT[:common], *OTHERWISE[common].split()])
    shared = int(run.state.block_tables["B"][0] or 0)
    yield Page(
        "Found",
        f"That was a **prefix hit**. B's table names A's block {shared}, whose hash is "
        f"{_hash(run.state, 'B', 0)} and whose ref_count is {run.state.ref_counts[shared]} now. Nothing was copied, and "
        f"nobody will write there, for it is full. B computed its other {run.state.seq_len('B') - common // size * size} "
        "tokens only. Two blocks might have one hash by accident, so the tokens themselves are compared too.\n\n"
        "B is finished next.",
        Question(
            f"Then C arrives, with “{' '.join(PROMPT[MIDDLE])}”, the words of A's second and third block, and one word "
            "more. How many of its tokens are found?",
            answer=_hits,
            explain=lambda after: (
                f"None. C's first block has the tokens of A's second, but nothing before it: its hash is "
                f"{_hash(after.after, 'C', 0)}, A's second block has {_hash(after.after, 'A', 1)}. The search goes from "
                "block 0 on and ends at the first hash that nobody has."
            ),
            unit="tokens",
        ),
    )

    run.free("B")
    run.add("C", [*PROMPT[MIDDLE], "always"])
    yield Page(
        "Not by its own tokens alone",
        "K is turned by the token's position, so C could not have used A's block: its tokens stand elsewhere.\n\n"
        f"But take D: “{' '.join(OTHER_PREFIX)}”, and then, **at the same positions**, the words of A's second block: "
        f"“{' '.join(PROMPT[size : 2 * size])}”. Same tokens, same positions, another prefix. Is A's block "
        f"{run.state.block_tables['A'][1]} good for D?",
        Question(
            f"D arrives and computes its own. In how many of the {run.cache.num_layers} layers does A's block "
            f"{run.state.block_tables['A'][1]} hold just the K and V that D computed?",
            answer=lambda after: int(after.found["equal_layers"]),
            explain=lambda after: (
                "In layer 0 only. There K and V are made of a token and its position. Layer 1 gets what layer 0 made of "
                f"the token and **all before it**, so K differs by up to {after.found['layers'][1]['k_error']:.2f} and V "
                f"by {after.found['layers'][1]['v_error']:.2f}."
            ),
            unit="layers",
            probe=UNCHAINED,
        ),
    )

    run.add("D", [*OTHER_PREFIX, *PROMPT[size : 2 * size], "yet"])
    exact = run.random.choice([8, 12])
    yield Page(
        "A hit without the chain",
        "Below, D was served the wrong way: from a cache that hashes a block's own tokens only. A's block "
        f"{run.state.block_tables['A'][1]} took the place of D's {run.state.block_tables['D'][1]} in a copy of the cache, "
        "and the real kernel ran over it. No token, length or slot is wrong, and a model with one layer would show "
        f"nothing. From the second layer on K, V and attention are wrong.\n\nThe chain tells them apart: {_hash(run.state, 'A', 1)} for A's, "
        f"{_hash(run.state, 'D', 1)} for D's.",
        Question(
            f"E arrives with the first {exact} words of A and no more: {exact // size} blocks, all of them cached. How many "
            "of its tokens are found?",
            answer=_hits,
            explain=lambda after: (
                f"At most {exact} − 1, for the last token's **output** is wanted, and the cache has K and V only. In whole "
                f"blocks that is {_hits(after)}. The last {exact - _hits(after)} were computed again, into a block of E's "
                f"own: {after.after.block_tables['E'][-1]} holds what A's "
                f"{after.after.block_tables['A'][exact // size - 1]} holds, under the same hash."
            ),
            unit="tokens",
        ),
        shows=UNCHAINED,
    )

    run.add("E", PROMPT[:exact])
    second = run.random.choice(["north", "south"])
    yield Page(
        "Salt",
        "Whoever sees an answer come fast knows that somebody asked the same before. Customers of one server should not "
        "learn that of each other, so a request may have a **salt**. It goes into the hash of its first block, and the "
        "chain takes it on: same tokens, other salt, other hashes all along.\n\n"
        "C and E are finished next.",
        Question(
            f"F arrives with A's first {size + 1} words and the salt “north”, and is finished. Then G comes with the same "
            f"words and the salt “{second}”. How many of G's tokens are found?",
            answer=lambda after: _hits(after, "G"),
            explain=lambda after: (
                f"F found nothing, for A came without a salt. G's first hash is {_hash(after.after, 'G', 0)}, A's "
                f"{_hash(after.after, 'A', 0)}. "
                + (
                    "F had left G's in the cache: a finished sequence's blocks can still be hit."
                    if _hits(after, "G")
                    else "Nobody who came before has the salt “south”."
                )
            ),
            unit="tokens",
        ),
    )

    run.free("C")
    run.free("E")
    run.add("F", PROMPT[: size + 1], salt="north")
    run.free("F")
    run.add("G", PROMPT[: size + 1], salt=second)
    yield Page(
        "Free, and still cached",
        "A free block keeps its hash and its numbers until it is handed out, so it costs nothing to keep. The free queue "
        f"is {free_queue(run.state)}; those in bold are cached. Freed blocks without a hash go before the head, cached ones "
        "to the end.\n\n"
        f"A is finished now. Its table [{listed(run.state.block_tables['A'])}] is walked **from the tail**.",
        Question(
            "Which block is then the last of the free queue?",
            answer=lambda after: after.after.free_blocks[-1],
            explain=lambda after: (
                f"The queue is {free_queue(after.after)}: the tail, {after.before.block_tables['A'][-1]}, had no hash and is "
                f"the head now. The first block of the chain went last, so it will be kept longest."
            ),
            unit="block id",
        ),
    )

    chain = {block: run.state.cached[block] for block in _hashed(run.state, "A")}
    run.free("A")
    needed = len(run.state.free_blocks) - len(chain) + run.random.choice([1, 2])
    yield Page(
        "Who goes first",
        f"The queue is {free_queue(run.state)}. Its head goes out next. A cached block that goes out is **evicted**: its hash "
        "leaves the map, and nobody finds it any more. So of the cached blocks the one freed longest ago goes first.",
        Question(
            f"H arrives with {needed * size - 1} new words: {needed} blocks. Which block loses its hash first?",
            answer=lambda after: int(after.first("BlockEvicted").block),
            explain=lambda after: (
                f"Block {after.first('BlockEvicted').block}, hash {_short(after.first('BlockEvicted').block_hash)}, was the "
                f"first of the queue to have one. {_blocks(after, BlockEvicted)} were "
                "evicted, in this order."
            ),
            unit="block id",
        ),
    )

    run.add("H", [f"w{i}" for i in range(needed * size - 1)])
    gone = [block for block, entry in chain.items() if run.state.cached.get(block) != entry]
    yield Page(
        "What is left of the chain",
        f"Of A's {len(chain)} cached blocks {len(gone)} {'is' if len(gone) == 1 else 'are'} gone: "
        f"{listed(reversed(gone))}. The tail of the chain goes first. Had the first block gone first, the others would be "
        "there still and of no use, for a search begins at block 0.\n\n"
        "H is finished next.",
        Question(
            "A's whole prompt comes again. How many of its tokens are found?",
            answer=_hits,
            explain=lambda after: (
                f"{count(_hits(after) // size, 'block')}, "
                f"{_blocks(after, BlockHit)}: what is left is the beginning of the "
                "chain. It was free, and was taken out of the middle of the queue."
            ),
            unit="tokens",
        ),
    )

    run.free("H")
    run.add("A", PROMPT)
    prompts = sum(event.num_tokens for event in run.events if isinstance(event, SequenceAdded))
    hit = sum(len(event.tokens) for event in run.events if isinstance(event, BlockHit))
    yield Page(
        "Computed once",
        f"All prompts together had {prompts} tokens, and {hit} of them were found, not computed. The check does not take that "
        "on trust: at every hit the model computed those tokens after all, behind that prefix, and K, V and outputs agreed "
        "within the tolerance.\n\n"
        "A server whose requests share long instructions, or a chat that comes back with all that was said, gains most. "
        "Another engine keeps the same prefixes in a tree: the next lesson, *Tree or chain?*.",
    )


def _hits(after: After, seq_id: str | None = None) -> int:
    hits = [event for event in after.events if isinstance(event, BlockHit) and seq_id in (None, event.seq_id)]
    return sum(len(event.tokens) for event in hits)


def _blocks(after: After, kind: type[BlockHit | BlockEvicted]) -> str:
    return listed(event.block for event in after.events if isinstance(event, kind))


def _hash(state: Snapshot, seq_id: str, logical_block: int) -> str:
    block = state.block_tables[seq_id][logical_block]
    assert block is not None
    return _short(state.cached[block].block_hash)


def _short(block_hash: str) -> str:
    """The digits of a hash that the stage shows."""
    return f"`{block_hash[:4]}`"


def _hashed(state: Snapshot, seq_id: str) -> list[int]:
    return [block for block in state.block_tables[seq_id] if block is not None and block in state.cached]


def _chain(state: Snapshot, seq_id: str) -> str:
    return listed(f"{_short(state.cached[block].block_hash)} in block {block}" for block in _hashed(state, seq_id))
