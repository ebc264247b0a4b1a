from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.blocks import BlockCopied, SequenceForked, Written
from pagedviz.engine.log.events.requests import BeamsChosen
from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.engine.log.text.sentences import count
from pagedviz.lesson import After, Page, Question, Run, listed
from pagedviz.scenario.settings import CacheConfig

TITLE = "Beam search"
CLAIM = "Beams make a tree of shared blocks: going on as two takes no block, and who is pruned frees at once what nobody else names."
SEED = 15
CACHE = CacheConfig(host_blocks=0, scatter=True)

WORDS = "Alice was beginning to get very tired of sitting by her sister on the bank and of having nothing to do".split()
BEAMS = 3
NOBODY = "Nobody"
CLEAR = 0.02  # the least difference of two sums that decide which beam stays, so that the printed sums differ


def lesson(run: Run) -> Iterator[Page]:
    size, prompt = run.cache.block_size, _prompt(run)
    filled = len(prompt) % size
    run.submit("S", prompt, max_tokens=2, samples=2)
    run.step()
    both, first, second = "Both of them", "S.1, which writes first", "S.2, which writes second"
    yield Page(
        "Two answers, by chance",
        f"S is a request for **two** answers to “{' '.join(prompt)}”. Its prompt was computed once; then S.2 was forked from "
        f"S.1, and both name blocks {listed(run.state.block_tables['S.1'])}.\n\n"
        f"Each draws its words by chance, the likelier the more often: {_said(run.state, 'S')}. (The seed decides, so you "
        "can come back to this.) Neither word is in a slot yet.",
        Question(
            "The next step writes both words. Who copies a block?",
            answer=lambda after: (
                {"S.1": first, "S.2": second}[after.first("BlockCopied").seq_id]
                if after.first("BlockCopied")
                else NOBODY
            ),
            explain=lambda after: (
                f"{filled} of the {size} slots of block {after.before.block_tables['S.1'][-1]} were filled, and two tables "
                f"named it. So S.1 copied it to block {after.first('BlockCopied').target}; then S.2 was alone there, and "
                "wrote in place."
                if filled
                else f"A prompt of {len(prompt)} fills its blocks of {size}. So each word opened a block of its own, and "
                "nobody writes into a full one."
            ),
            choices=(first, second, both, NOBODY),
        ),
    )

    run.step(until="BatchWritten")
    yield Page(
        "Parallel sampling",
        f"This is **parallel sampling**, the simple case. {count(len(prompt) // size, 'full block')} of the prompt will be "
        f"shared to the end, and what comes behind is each one's own. In use are {len(run.state.ref_counts)} blocks; two "
        f"separate requests would use {_entries(run.state)}.\n\n"
        f"S gets its last words now and is finished. Then A comes, with the same prompt and {BEAMS} beams.",
    )

    run.submit("A", prompt, max_tokens=6, beams=BEAMS)
    run.step()
    yield Page(
        "Three beams",
        "Chance is not asked here: A wants the likeliest *answer*. Who always takes the likeliest next word may miss it, and "
        f"nobody can try all. So the {BEAMS} best beginnings are kept: the **beams**. A beam's score is the sum of its "
        f"words' log-probabilities, so nearer to 0 is likelier.\n\nBehind the prompt: {_scored(run.state)}. Again nothing "
        "was copied.",
        Question(
            "The next step writes these words. How many blocks does it copy?",
            answer=_copies,
            explain=lambda after: (
                f"{_copied(after)} Of {BEAMS} that name one block, all but the last to write need a copy."
                if filled
                else "None: each word opened a block of its own."
            ),
            unit="blocks",
        ),
    )

    run.step(until="BatchWritten")
    candidates = {seq_id: _candidates(run, seq_id) for seq_id in run.state.requests["A"].outputs}
    yield Page(
        "Who goes on?",
        "Each beam wrote its word. Now each could go on with any word. Here are the three likeliest of each, with the score "
        "that the beam would then have:\n\n"
        + "\n".join(
            f"- **{seq_id}**: {listed(_with_score(token, score) for token, score in own)}"
            for seq_id, own in candidates.items()
        ),
        Question(
            f"The {BEAMS} highest of these {BEAMS * BEAMS} scores are the beams of the next step. Which of today's beams have "
            "none of them, and end here?",
            answer=lambda after: _named(after.first("BeamsChosen").pruned),
            explain=lambda after: f"The highest are {_chosen(after.first('BeamsChosen'))}.",
            choices=(NOBODY, *(_named(some) for k in (1, 2) for some in combinations(candidates, k))),
        ),
    )

    run.go_on(until="BeamsChosen")
    chosen = run.events[-1]
    assert isinstance(chosen, BeamsChosen)
    yield Page(
        "Pruned",
        f"{_named(chosen.pruned)} {'is' if len(chosen.pruned) == 1 else 'are'} **pruned**: no answer will begin so. "
        f"{_from_whom(chosen)}\n\nThe tables are still as they were: {len(run.state.ref_counts)} blocks are in use.",
        Question(
            "The new beams are forked now, then the pruned let go of their blocks. How many blocks are in use after that?",
            answer=lambda after: len(after.after.ref_counts),
            explain=lambda after: (
                f"The forks took none, for they name what is there. {_freed(after)} In use are "
                f"{listed(sorted(after.after.ref_counts))}."
            ),
            unit="blocks",
        ),
    )

    run.go_on()
    yield Page(
        "Freed at once",
        f"The free queue is {listed(run.state.free_blocks)} now: what only a pruned beam had named is at its head, and is "
        f"used again in the very next step. A block that others name just lost a name.\n\n"
        f"Each beam has a new word to write, at position {len(run.state.tokens[chosen.seq_ids[0]])}.",
        Question(
            "How many blocks does the next step copy?",
            answer=_copies,
            explain=lambda after: (
                f"{_copied(after)} " + ("Who is alone in its last block wrote in place." if _copies(after) else "")
                if (len(prompt) + 1) % size
                else f"None. {len(prompt) + 1} tokens fill the blocks, so each word opened a block of its own."
            ),
            unit="blocks",
        ),
    )

    run.step(until="BatchWritten")
    beams = [run.state.tokens[seq_id] for seq_id in run.state.requests["A"].outputs]
    of_a = [event for event in run.events if getattr(event, "seq_id", "").startswith("A.")]
    yield Page(
        "A tree of blocks",
        f"Read the tables from the left: they begin with the same blocks and part later, as branches of a **tree** do. In use "
        f"are {len(run.state.ref_counts)} blocks; without sharing it would be {_entries(run.state)}.\n\n"
        "It saves copying as well. An engine that gives each beam a cache of its own copies the whole of it whenever a beam "
        f"goes on as two: {_whole_copies(run.events)} tokens so far. Here {_slots_copied(of_a)} were copied.",
        Question(
            "vLLM's engine of today cannot fork. There, each beam of each step is a new request for one word, and full blocks "
            f"are found by their hash. These {BEAMS} beams have {len(beams[0])} tokens each. How many tokens would have been "
            f"computed in this step, in place of {BEAMS}?",
            answer=lambda after: _computed_as_requests(run, prompt, beams),
            explain=lambda after: _as_requests(len(beams[0]), size),
            unit="tokens",
        ),
    )

    run.go_on()
    yield Page(
        "Why it left vLLM's core",
        "Beam search first led to the idea of PagedAttention, say vLLM's developers in [the proposal to drop it]"
        "(https://github.com/vllm-project/vllm/issues/6226) (2024). Their reasons: it is rare among users of large models, and it "
        "alone makes and ends sequences in every step. All else must allow for that, or "
        "[refuse to work beside it](https://github.com/vllm-project/vllm/issues/8306), as speculative decoding did.\n\n"
        "Users objected. So it left the *core* only, in version 0.6.3 ([where is it?]"
        "(https://github.com/vllm-project/vllm/issues/10605)): `LLM.beam_search` sends new requests in each step, as in the last "
        "question. Full blocks are shared still, a partial one is computed again.\n\n"
        "Its authors [measured](https://github.com/vllm-project/vllm/pull/8726), on one GPU and with prefix caching, more requests a second "
        "than before, and far fewer without; some users [found it slower](https://github.com/vllm-project/vllm/issues/14426).",
    )


def _prompt(run: Run) -> list[str]:
    """A prompt after which the second choice prunes a beam, and it is clear which one."""
    length, starts = run.random.choice([5, 6, 7, 8]), list(range(len(WORDS) - 8))
    run.random.shuffle(starts)
    prompts = [WORDS[start : start + length] for start in starts]
    return next(filter(lambda prompt: _teaches(Run(run.cache, run.seed), prompt), prompts), prompts[0])


def _teaches(trial: Run, prompt: Sequence[Token]) -> bool:
    trial.submit("A", prompt, max_tokens=6, beams=BEAMS)
    trial.step()
    trial.step(until="BatchWritten")
    scores = sorted(score for seq_id in trial.state.requests["A"].outputs for _, score in _candidates(trial, seq_id))
    trial.go_on(until="BeamsChosen")
    chosen = trial.events[-1]
    return isinstance(chosen, BeamsChosen) and bool(chosen.pruned) and scores[-BEAMS] - scores[-BEAMS - 1] > CLEAR


def _candidates(run: Run, seq_id: str) -> list[tuple[Token, float]]:
    """The possible next tokens of a beam, each with the score that the beam would have."""
    score = run.state.requests["A"].scores[seq_id]
    return [(token, score + log) for token, log in run.likeliest(run.state.tokens[seq_id], BEAMS)]


def _computed_as_requests(run: Run, prompt: Sequence[Token], beams: Sequence[Sequence[Token]]) -> int:
    """Tokens computed by the last step of a search if each beam of each step is a new request with a prefix cache."""
    engine = Run(replace(run.cache, profile="vllm-v1", prefix_caching=True, num_blocks=32), run.seed)
    for seq_len in range(len(prompt), len(beams[0]) + 1):
        before = len(engine.events)
        for k, beam in enumerate(beams):
            engine.add(f"{seq_len}.{k}", beam[:seq_len])
    return sum(
        len(write.tokens) for event in engine.events[before:] if isinstance(event, Written) for write in event.writes
    )


def _as_requests(seq_len: int, size: int) -> str:
    hit = (seq_len - 1) // size * size
    return (
        f"Of {seq_len} tokens {hit} are found, in {hit // size} full block{'s' * (hit // size != 1)}, for the last token's output "
        f"is wanted. The other {seq_len - hit} are computed again by each of the {BEAMS}"
        + (": as many as here, this time." if seq_len - hit == 1 else ".")
    )


def _copies(after: After) -> int:
    return sum(isinstance(event, BlockCopied) for event in after.events)


def _copied(after: After) -> str:
    copies = [event for event in after.events if isinstance(event, BlockCopied)]
    return " ".join(f"{copy.seq_id} copied block {copy.source} to {copy.target}." for copy in copies) or "None."


def _slots_copied(events: Iterable[Event]) -> int:
    return sum(event.num_slots for event in events if isinstance(event, BlockCopied))


def _whole_copies(events: Iterable[Event]) -> int:
    """How many tokens A's beams had when they were forked."""
    copied, seq_lens = 0, dict[str, int]()
    for event in events:
        if isinstance(event, Written):
            seq_lens |= {write.seq_id: write.position + len(write.tokens) for write in event.writes}
        elif isinstance(event, SequenceForked) and event.parent.startswith("A."):
            seq_lens[event.seq_id] = seq_lens[event.parent]
            copied += seq_lens[event.parent]
    return copied


def _freed(after: After) -> str:
    freed = [block for block in after.before.ref_counts if block not in after.after.ref_counts]
    return f"Only the pruned had named {listed(freed)}, so {'it is' if len(freed) == 1 else 'they are'} free."


def _from_whom(chosen: BeamsChosen) -> str:
    new = [
        f"{seq_id} goes on from {parent}"
        for seq_id, parent in zip(chosen.seq_ids, chosen.parents, strict=True)
        if seq_id != parent
    ]
    stay = [seq_id for seq_id in chosen.seq_ids if seq_id in chosen.parents]
    return f"{listed(stay)} {'goes' if len(stay) == 1 else 'go'} on, and {', '.join(new)} with another word."


def _chosen(chosen: BeamsChosen) -> str:
    beams = zip(chosen.parents, chosen.tokens, chosen.scores, strict=True)
    return listed(f"{_number(score)} ({parent} “{token}”)" for parent, token, score in beams)


def _scored(state: Snapshot) -> str:
    request = state.requests["A"]
    return listed(
        f"{seq_id} {_with_score(tokens[-1], request.scores[seq_id])}" for seq_id, tokens in request.outputs.items()
    )


def _said(state: Snapshot, name: str) -> str:
    return listed(f"{seq_id} says “{tokens[-1]}”" for seq_id, tokens in state.requests[name].outputs.items())


def _entries(state: Snapshot) -> int:
    return sum(len(row) for row in state.block_tables.values())


def _with_score(token: Token, score: float) -> str:
    return f"“{token}”\u00a0{_number(score)}"  # on one line


def _number(score: float) -> str:
    return f"{score:.2f}".replace("-", "−")


def _named(names: Sequence[str]) -> str:
    return " and ".join(names) or NOBODY
