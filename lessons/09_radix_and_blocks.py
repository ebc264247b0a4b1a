from collections.abc import Iterable, Iterator
from typing import Any

from pagedviz.engine.log.events.blocks import BlockHit
from pagedviz.engine.policies.orders import longest_prefix_first
from pagedviz.engine.requests.serving import one_by_one
from pagedviz.lesson import After, Page, Question, Run
from pagedviz.probe import Orders, Radix
from pagedviz.scenario.settings import CacheConfig

TITLE = "Tree or chain?"
CLAIM = "With pages of one token a tree also hits the tokens that fill no block; the order of serving decides what is left to hit."
SEED = 4
CACHE = CacheConfig(num_blocks=10, host_blocks=0, num_layers=1, profile="vllm-v1", prefix_caching=True, scatter=True)

GUIDE = "you are a guide to the old town answer briefly please".split()
NOVEL = (
    "it was the best of times it was the worst of times it was the age of wisdom it was the age of foolishness it was the "
    "epoch of belief it was the epoch of incredulity"
).split()
TREE, FINE_TREE = Radix(CACHE.block_size), Radix(1)


def lesson(run: Run) -> Iterator[Page]:
    size = run.cache.block_size
    common = run.random.choice([6, 7, 10, 11])  # tokens with which all prompts but the novel begin
    guide = GUIDE[:common]
    a = [*guide, "where", "is", "the", "old", "bridge"]
    run.add("A", a)
    yield Page(
        "Two ways to find a prefix",
        "A cached prefix has to be found again. The stage does it as vLLM does: a **chain** of full blocks, each with a hash "
        "of its tokens and of the block before.\n\n"
        "SGLang keeps a **radix tree**, drawn below: a node is a run of tokens with its pages, as it calls blocks, and prompts "
        "share the way from the root as far as they agree.\n\n"
        f"A's {len(a)} tokens fill {len(a) // size} blocks. The tree has the same {len(a) // size * size} tokens, in one node.",
        Question(
            f"B arrives next. Its first {common} tokens are A's. How many of its tokens are hit in the blocks?",
            answer=lambda after: _hit_in_blocks(after),
            explain=lambda after: (
                f"Whole blocks only: {common} // {size} = {common // size}, and {common // size} × {size} = "
                f"{_hit_in_blocks(after)}. The other {common - _hit_in_blocks(after)} common tokens are computed again."
            ),
            unit="tokens",
        ),
        shows=TREE,
    )

    run.add("B", [*guide, "when", "does", "it", "open"])
    of_a = common + 2
    yield Page(
        "A run is split",
        "The tree matched B too. The match ended inside A's run, so that node was **split**: the front half is shared now, and "
        "what follows it hangs below. No page moved.\n\n"
        "In the chain nothing had to be split: every block is an entry of its own.",
        Question(
            f"C arrives next. Its first {of_a} tokens are A's. How many of its tokens does the tree hit, with pages of {size}?",
            answer=lambda after: int(_request(after)["pages"][str(size)]),
            explain=lambda after: (
                f"Whole pages only: {of_a} // {size} × {size} = {_request(after)['pages'][str(size)]}. The blocks hit "
                f"{_request(after)['blocks']}: with pages as large as blocks, a tree and a chain find the same."
            ),
            unit="tokens",
            probe=TREE,
        ),
        shows=TREE,
    )

    run.add("C", [*a[:of_a], "a", "museum"])
    of_b = common + 3
    yield Page(
        "Pages of one token",
        "The same prompts and as many slots, below in pages of **one** token, SGLang's default on CUDA. A page is never partly "
        f"filled, so every computed token is in the tree, and a run may be split anywhere: the first at {common}, where the "
        "prompts part.",
        Question(
            f"D arrives next. Its first {of_b} tokens are B's. How many does the tree hit, with pages of one token?",
            answer=lambda after: int(_request(after)["pages"]["1"]),
            explain=lambda after: (
                f"All {_request(after)['pages']['1']} of them. Blocks of {size} hit {_request(after)['blocks']}, the whole "
                "blocks among them."
            ),
            unit="tokens",
            probe=FINE_TREE,
        ),
        shows=FINE_TREE,
    )

    d = [*guide, "when", "does", "it", "close"]
    run.add("D", d)
    yield Page(
        "The tail that fills no block",
        f"Below is each prompt with what it hit. The gain is less than a block a prompt: at most {size - 1} tokens here, 15 "
        "with vLLM's blocks of 16.\n\n"
        f"It has a price: D's {len(d)} tokens are {len(d)} pages for the kernel to look up instead of {-(-len(d) // size)} "
        "blocks. Whether that costs bandwidth is the kernel's affair: lesson *Which block size?*.\n\n"
        "A, B, C and D finish next. Their locks go, and what they cached stays until its room is needed.",
        shows=FINE_TREE,
    )

    for seq_id in "ABCD":
        run.free(seq_id)
    prompts = {"the guide": [*guide, "thank", "you"], "A": [*a, "and", "who", "built", "it"], "the novel": NOVEL}
    arrived = run.random.choice(
        [("the novel", "A", "the guide"), ("the novel", "the guide", "A"), ("the guide", "the novel", "A")]
    )
    waiting = {seq_id: prompts[kind] for seq_id, kind in zip("EFG", arrived, strict=True)}
    begins = {
        "the guide": f"begins with the {common} tokens that all have in common",
        "A": f"begins with all {len(a)} tokens of A",
        "the novel": f"begins as nobody did, and needs {-(-len(NOVEL) // size)} of the {run.cache.num_blocks - 1} blocks "
        "that are ever handed out",
    }
    told = "\n".join(
        f"- **{seq_id}**, {len(waiting[seq_id])} tokens, {begins[kind]}"
        for seq_id, kind in zip(waiting, arrived, strict=True)
    )
    hits = {seq_id: run.num_hit_tokens(tokens) for seq_id, tokens in waiting.items()}
    asked = Orders(tuple(waiting), 1)
    yield Page(
        "Who is next?",
        f"Three prompts wait, and came in this order:\n\n{told}\n\n"
        "Each needs blocks, and what is cached must go to make room for the novel. **First come, first served** takes E. A "
        "**cache-aware** order takes whoever finds the longest prefix cached; SGLang's name for it is `lpm`.",
        Question(
            "Who is served first, if the longest cached prefix goes first?",
            answer=lambda after: str(after.first("SequenceAdded").seq_id),
            explain=lambda after: f"In the blocks {_list(f'{seq_id} finds {hit}' for seq_id, hit in hits.items())}.",
            choices=tuple(waiting),
        ),
        shows=FINE_TREE,
    )

    served = one_by_one(run, waiting, longest_prefix_first)
    first, _ = next(served)
    yield Page(
        f"{first} first",
        f"{first} hit its prefix while it was there. The other two follow, each when the one before is finished, and again the "
        "longest prefix goes first.",
        Question(
            "Had they been served as they came, how many tokens of E, F and G would the blocks have hit, all together?",
            answer=lambda after: int(_in_blocks(after, "first_come")["hit"]),
            explain=lambda after: _compared(after),
            unit="tokens",
            probe=asked,
        ),
        shows=FINE_TREE,
    )

    list(served)
    yield Page(
        "What the order was worth",
        "Below, both orders, by both caches. Whoever comes after the novel finds nothing of what was cached before it: it "
        "needed all of the room.\n\n"
        "The tree may forget more than was needed, for a leaf goes as a whole; a chain loses one block at a time, the last "
        "first.\n\n"
        "The price is fairness: while others find more, the novel waits. SGLang's default is first come, as vLLM's is.",
        shows=asked,
    )


def _hit_in_blocks(after: After) -> int:
    return sum(len(event.tokens) for event in after.events if isinstance(event, BlockHit))


def _request(after: After) -> dict[str, Any]:
    """The row of the prompt that was added last."""
    row: dict[str, Any] = after.found["requests"][-1]
    return row


def _in_blocks(after: After, order: str) -> dict[str, Any]:
    return next(row for row in after.found["rows"] if row["page_size"] is None and row["order"] == order)


def _compared(after: After) -> str:
    came, chosen = (_in_blocks(after, order) for order in ("first_come", "longest_prefix_first"))
    each = {row["order"]: _list(f"{seq_id} {hit}" for seq_id, hit in row["served"]) for row in (came, chosen)}
    return (
        f"As they came: {each['first_come']}, together {came['hit']}. Longest prefix first: "
        f"{each['longest_prefix_first']}, together {chosen['hit']}."
    )


def _list(parts: Iterable[str]) -> str:
    *most, last = parts
    return f"{', '.join(most)} and {last}"
