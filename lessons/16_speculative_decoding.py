from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from pagedviz.engine.log.events.base import Event, Token
from pagedviz.engine.log.events.drafts import DraftsVerified, TokensDrafted
from pagedviz.engine.log.events.requests import TokensSampled
from pagedviz.engine.log.text.sentences import count
from pagedviz.engine.policies.limits import Speculation
from pagedviz.engine.requests.timetable import timetable
from pagedviz.lesson import After, Page, Question, Run, listed
from pagedviz.scenario.settings import CacheConfig

TITLE = "Speculative decoding"
CLAIM = (
    "One launch verifies several guessed words; those that the model would not have said are rolled back, and the words "
    "are the same as without."
)
SEED = 25
DRAFTS, CUT, LOAD, OUTPUTS = 3, 0.4, 3, 5
CACHE = CacheConfig(
    num_blocks=14,
    host_blocks=0,
    profile="vllm-v1",
    prefix_caching=True,
    scatter=True,
    speculation=Speculation(DRAFTS, CUT, LOAD),
)
WAYS = {
    "No drafts": Speculation(),
    f"{DRAFTS} drafts each": Speculation(DRAFTS),
    f"Cut below {CUT:g}": Speculation(DRAFTS, CUT),
    f"Cut, and {LOAD} a launch at most, as here": CACHE.speculation,
}

WORDS = (
    "in the beginning God created the heaven and the earth and the earth was without form and void and darkness was upon "
    "the face of the deep and the spirit moved upon the face of the waters and there was light and it was good"
).split()
CLEAR = 0.001  # the least distance of the two likeliest words, so that rounding cannot change the choice


def lesson(run: Run) -> Iterator[Page]:
    size, prompt = run.cache.block_size, _prompt(run)
    said = _says(run, prompt, 2 * DRAFTS + 2)
    run.add("A", prompt)
    run.generate("A", len(said))
    yield Page(
        "A launch a word",
        f"Behind A's prompt of {len(prompt)} the model said {len(said)} words: “{_text(said)}”. Each took a launch of its own, "
        "which read the K and V of all tokens before, and in a real model all weights, for a single word.\n\n"
        "The launch of a prompt reads all that once for many tokens, because they are *known*. The words to come are not "
        "known. But they can be guessed.\n\nB comes next, with the same prompt.",
    )

    run.add("B", prompt)
    run.draft("B", DRAFTS)
    drafts = run.state.drafted["B"]
    alone = [token for token, _ in run.guesses([*prompt, said[0]], DRAFTS, corrected=False)]
    yield Page(
        "Guess, then correct",
        f"The model's next word for B is known, “{said[0]}”. Behind it stand {DRAFTS} **drafts**, made by a drafter, "
        "which must be far cheaper than the model:\n\n"
        f"- all at once, from what stands before: {_quoted(alone)}\n"
        f"- each corrected by the word chosen before it: {_quoted(drafts)}\n\n"
        "DeepSeek's DSpark drafts so, and calls it semi-autoregressive. The next launch computes all "
        f"{DRAFTS + 1} words, so B's blocks, {_row(run)}, have slots for them.\n\n"
        f"A said “{_text(said[: DRAFTS + 2])}”.",
        Question(
            "A draft stays if the model says it itself, and if all drafts before it stay. How many slots are rolled back?",
            answer=lambda after: len(after.first("DraftsVerified").slots),
            explain=lambda after: _verdict(after.first("DraftsVerified"), said),
            unit="slots",
        ),
    )

    run.verify("B")
    verified = run.events[-1]
    assert isinstance(verified, DraftsVerified)
    accepted, seq_len = len(verified.accepted), run.state.seq_len("B")
    one = len(verified.slots) == 1
    yield Page(
        "Rolled back",
        f"That launch computed {DRAFTS + 1} queries of B, each over what stands before it, and gave a word behind each. "
        + (
            f"{_first(accepted)} what the model says itself; behind that it says “{said[accepted + 1]}”. So B knows "
            f"{accepted + 1} words more, by one launch.\n\n"
            if accepted
            else f"No draft is what the model says itself: it says “{said[1]}”. So B knows one word more, as after any launch. "
            "Nothing was lost but work.\n\n"
        )
        + f"The other drafts were **rolled back**: B's length is {seq_len}. "
        f"{'Slot' if one else 'Slots'} {listed(verified.slots)} {'holds' if one else 'hold'} garbage. Nobody erases it, for no "
        f"kernel reads behind a sequence's length.",
        Question(
            f"B goes on without drafts for a moment, and writes “{said[accepted + 1]}”. Into which slot?",
            answer=lambda after: int(after.first("TokenWritten").slot),
            explain=lambda after: (
                f"It is position {seq_len}: block {after.first('TokenWritten').block} × {size} + offset {seq_len % size}. There "
                f"lay “{verified.rejected[0]}”, the first draft that was wrong."
            ),
            unit="slot",
        ),
    )

    run.generate("B")
    given = said[accepted + 3 : accepted + 3 + DRAFTS]
    left = len(run.state.block_tables["B"]) - -(-seq_len // size)
    yield Page(
        "The blocks stay",
        "The garbage was overwritten. "
        + (
            f"And block {run.state.block_tables['B'][-1]}, in which nothing of B's was left, had stayed B's all the time, as in "
            f"vLLM. The policy `trim_blocks` would have freed it, and B would soon take one again."
            if left
            else "B needed no other block for it. Had a block held nothing but garbage, it would have stayed B's, as in vLLM: "
            "the next words want it."
        )
        + f"\n\nWho guesses does not matter. “{said[accepted + 2]}” is the model's next word for B; let three words that A said "
        f"be the drafts: {_quoted(given)}. The four words, from position {seq_len + 1} on, fill a block on "
        "the way. In this cache a full block of known words has a hash, by which others find it.",
        Question(
            "After the launch that computes these four, and before it is known what the model says: which is the last of B's "
            "blocks, in the order of its table, that has a hash?",
            answer=lambda after: _hashed(after)[-1],
            explain=_why_hashed,
            unit="block id",
        ),
    )

    run.draft("B", given)
    run.verify("B", until="TokensWritten")
    yield Page(
        "A guess gets no hash",
        "A hash **promises** that a block holds certain words, and anybody may take it at its word. A draft may be gone in a "
        "moment, so no block with one has a hash. If the drafts stay, it gets its hash when B is scheduled next.\n\n"
        f"They all stay now, for the model says what it said to A. So that launch gives B {DRAFTS + 1} words, the last of them "
        "in no slot yet.\n\nThen a server: C and D want "
        f"{OUTPUTS} words each, and in every step the drafter drafts up to {DRAFTS} for each.",
    )

    run.go_on()
    prompts = _two_prompts(run, prompt)
    for name, words in prompts.items():
        run.submit(name, words, max_tokens=OUTPUTS)
    run.step(until="TokensSampled")
    guesses = {name: _guesses(run, words) for name, words in prompts.items()}
    yield Page(
        "How sure",
        "C and D have their first words, and the drafter has guessed on. It says how sure it is of each draft, from 0 to 1:\n\n"
        + "\n".join(f"- **{name}**: {listed(map(_with_confidence, own))}" for name, own in guesses.items())
        + "\n\nA wrong draft costs work and gives nothing. So drafts are **cut** before the first whose confidence is below "
        f"{CUT:g}.",
        Question(
            "How many drafts are left, of C and D together?",
            answer=lambda after: sum(len(event.tokens) for event in after.events if isinstance(event, TokensDrafted)),
            explain=lambda after: (
                f"{' and '.join(f'{_num_sure(own)} of {name}' for name, own in guesses.items())}. Behind the first that is cut "
                "none is worth a slot, however sure: a draft stays only if all before it stay."
            ),
            unit="drafts",
        ),
    )

    run.go_on()
    yield Page(
        "How busy",
        "A launch for one or two requests leaves most of a GPU idle, so guesses cost little. With hundreds of requests every "
        f"draft takes the place of a word that is sure. So there is a **load limit**: here a launch verifies {LOAD} drafts at "
        "most, of all requests together, those first that came first.\n\n"
        f"Left by the cut are {listed(f'{_num_sure(own)} of {name}' for name, own in guesses.items())}. DSpark weighs both as it "
        "goes: how sure each draft is, and how full the machine.",
        Question(
            "How many of D's drafts does the next launch verify?",
            answer=lambda after: int(after.after.scheduled["D"]) - 1,
            explain=lambda after: _why_so_many(guesses, after),
            unit="drafts",
        ),
    )

    run.step(until="BatchWritten")
    computed, uncut = sum(run.state.scheduled.values()), _served(run, prompts, Speculation(DRAFTS))
    others = {name: [token for token, _ in own][run.state.scheduled[name] - 1 :] for name, own in guesses.items()}
    yield Page(
        "What was not verified",
        f"The launch computed {computed} tokens, {listed(f'{n} of {s}' for s, n in run.state.scheduled.items())}: the word "
        "that each had, and the drafts behind it. "
        f"With all drafts it would have been {2 * (1 + DRAFTS)}. Was it right to leave out the others, "
        f"{' and '.join(f'{_quoted(tokens)} of {name}' for name, tokens in others.items() if tokens)}?\n\n"
        "Word by word the model would say next:\n\n"
        + "\n".join(f"- **{name}**: “{_text(_says(run, words, DRAFTS + 1)[1:])}”" for name, words in prompts.items()),
        Question(
            "How many of those that were left out would have stayed?",
            answer=lambda after: _num_accepted(uncut.events) - _num_accepted(after.events),
            explain=lambda after: (
                f"Had all {2 * DRAFTS} been verified, {_num_accepted(uncut.events)} would have stayed. Here {_num_accepted(after.events)} "
                f"of {computed - 2} did."
            ),
            unit="drafts",
        ),
    )

    while run.state.running:
        run.step()
    nearest = min(_nearest(run, words) for words in [prompt, *prompts.values()])
    yield Page(
        "The same words",
        "C and D, in four ways. The last is the stage's own run, the others were counted by the same engine:\n\n"
        + "\n".join(_way(name, _served(run, prompts, speculation)) for name, speculation in WAYS.items())
        + "\n\n"
        "All give **the same words**, and so do A, word by word, and B, by drafts. It must be so, unless two words tie: "
        "a launch of several queries rounds otherwise than one of a single query, by less than the tolerance of the check. "
        f"Here the scores of the two likeliest words were never nearer than {nearest:.3f}.\n\n"
        "Who draws words by chance keeps a draft with a probability that leaves all chances as they were.",
    )


def _prompt(run: Run) -> list[str]:
    """A prompt after which as many drafts are right as the seed draws; if there is none, as few as possible. It is so
    long that a draft of the second round fills a block."""
    wanted = run.random.choice([0, 1, 2])
    length = 6 if wanted == 2 else run.random.choice([6, 7])
    right: dict[int, list[str]] = {}
    for prompt in _prompts(run, length):
        right.setdefault(_num_right(run, prompt), prompt)
        if wanted in right:
            return right[wanted]
    return right[min(right)]


def _two_prompts(run: Run, prompt: Sequence[Token]) -> dict[str, list[str]]:
    """The prompts of C and D. Their first draft is right, and the drafter is sure of more drafts than a launch verifies."""
    found: list[tuple[list[str], int]] = []
    others: list[list[str]] = []
    for words in _prompts(run, run.cache.block_size):
        sure = _num_sure(_guesses(run, words))
        if words[0] == prompt[0] or not sure:
            continue
        if not _num_right(run, words):
            others.append(words)
            continue
        for other, of_other in found:
            if of_other + sure > LOAD and other[0] != words[0]:
                return {"C": other, "D": words}
        found.append((words, sure))
    c, d, *_ = [*(words for words, _ in found), *others]
    return {"C": c, "D": d}


def _prompts(run: Run, length: int) -> Iterator[list[str]]:
    """So many words from any place of the text, behind which the model's words are clear."""
    for start in run.random.sample(range(len(WORDS) - length), len(WORDS) - length):
        prompt = WORDS[start : start + length]
        if _nearest(run, prompt) > CLEAR:
            yield prompt


def _says(run: Run, prompt: Sequence[Token], number: int) -> list[Token]:
    """The model's next words."""
    tokens = list(prompt)
    for _ in range(number):
        tokens.append(run.likeliest(tokens, 1)[0][0])
    return tokens[len(prompt) :]


def _nearest(run: Run, prompt: Sequence[Token]) -> float:
    """The least distance between the two likeliest words, over all words behind a prompt that the lesson uses."""
    tokens, distances = [*prompt, *_says(run, prompt, 2 * DRAFTS + 2)], []
    for seq_len in range(len(prompt), len(tokens)):
        (_, first), (_, second) = run.likeliest(tokens[:seq_len], 2)
        distances.append(first - second)
    return min(distances)


def _guesses(run: Run, prompt: Sequence[Token]) -> list[tuple[Token, float]]:
    """The drafts behind a prompt and the model's next word."""
    return run.guesses([*prompt, *_says(run, prompt, 1)], DRAFTS)


def _num_right(run: Run, prompt: Sequence[Token]) -> int:
    said = _says(run, prompt, DRAFTS + 1)[1:]
    right = [token == word for (token, _), word in zip(_guesses(run, prompt), said, strict=True)]
    return [*right, False].index(False)


def _num_sure(guesses: Sequence[tuple[Token, float]]) -> int:
    return [*(confidence >= CUT for _, confidence in guesses), False].index(False)


def _served(run: Run, prompts: Mapping[str, Sequence[Token]], speculation: Speculation) -> Run:
    """The two requests served to the end, with other drafts."""
    other = Run(replace(run.cache, speculation=speculation), run.seed)
    for name, prompt in prompts.items():
        other.submit(name, prompt, max_tokens=OUTPUTS)
    other.step(2 * OUTPUTS)
    return other


def _num_accepted(events: Iterable[Event]) -> int:
    """How many drafts stayed in the first engine step that verified any."""
    verified = list[DraftsVerified]()
    for event in events:
        if isinstance(event, DraftsVerified):
            verified.append(event)
        elif isinstance(event, TokensSampled) and verified:
            break
    return sum(len(event.accepted) for event in verified)


def _way(name: str, served: Run) -> str:
    rows = timetable(served.events)
    verified = [event for event in served.events if isinstance(event, DraftsVerified)]
    drafts, right = sum(len(e.accepted) + len(e.rejected) for e in verified), sum(len(e.accepted) for e in verified)
    found = f"; {count(drafts, 'draft')}, {right} right" if drafts else ""
    return f"- {name}: **{count(len(rows), 'launch', 'es')}**, {sum(row.num_tokens for row in rows)} tokens{found}"


def _verdict(event: DraftsVerified, said: Sequence[Token]) -> str:
    accepted, rejected = len(event.accepted), len(event.rejected)
    agreed = f"{_quoted(event.accepted)} agreed" if accepted else "None agreed"
    behind = f", and what stands behind it goes with it: {count(rejected, 'slot')}" if rejected > 1 else ""
    garbage = f"Slots {listed(event.slots)} hold" if rejected > 1 else f"Slot {event.slots[0]} holds"
    return (
        f"{agreed}. Then “{event.rejected[0]}” was drafted, and the model says “{said[accepted + 1]}”. So it goes{behind}. "
        f"{garbage} garbage."
    )


def _hashed(after: After) -> list[int]:
    return [block for block in after.after.block_tables["B"] if block is not None and block in after.after.cached]


def _why_hashed(after: After) -> str:
    """Which blocks have a hash, and why the others have none."""
    state = after.after
    full = [block for j, block in enumerate(state.block_tables["B"]) if state.filled("B", j) == state.block_size]
    drafted = [block for block in full if block not in state.cached]
    return (
        f"All words of {listed(_hashed(after))} are known. Block {listed(drafted)} is full as well, but "
        "some of its words are drafts, which may be taken back."
    )


def _why_so_many(guesses: Mapping[str, Sequence[tuple[Token, float]]], after: After) -> str:
    sure = {name: _num_sure(own) for name, own in guesses.items()}
    return (
        f"The cut leaves C {sure['C']} and D {sure['D']}, and at most {LOAD} are verified. C comes first and has its "
        f"{sure['C']}, so D has {after.after.scheduled['D'] - 1}."
    )


def _with_confidence(draft: tuple[Token, float]) -> str:
    token, confidence = draft
    return f"“{token}”\u00a0{confidence:.2f}"  # on one line


def _first(number: int) -> str:
    return "The first draft is" if number == 1 else f"The first {number} drafts are"


def _row(run: Run) -> str:
    return listed(run.state.block_tables["B"])


def _text(tokens: Iterable[Token]) -> str:
    return " ".join(map(str, tokens))


def _quoted(tokens: Iterable[Token]) -> str:
    return listed(f"“{token}”" for token in tokens)
