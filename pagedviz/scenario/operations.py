"""The operations of a scenario. Each operation is one class: its fields, its short text, and its JSON.

In a scenario's JSON, an operation has one of its `verbs` as a key, and may have any of its other `keys`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from pagedviz.engine.log.events.base import Token
from pagedviz.scenario import json_values
from pagedviz.scenario.json_values import ScenarioError

# Limits, each with its unit.
MAX_STEPS = 1_000  # of the engine, over all operations
MAX_PRIORITY = 1_000  # and as much below 0
MAX_DRAFTS = 8  # tokens that one launch verifies of one sequence
MAX_BRANCHES = 8  # samples or beams of one request
MAX_TRANSFER_ID = 1_000_000

JSON = Mapping[str, Any]


class Op:
    """An operation on a cache. A subclass with verbs is an operation of the format."""

    kinds: ClassVar[dict[str, type["Op"]]] = {}
    verbs: ClassVar[tuple[str, ...]] = ()
    keys: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, verbs: tuple[str, ...] = (), keys: tuple[str, ...] = ()) -> None:
        cls.verbs, cls.keys = verbs, keys
        Op.kinds.update(dict.fromkeys(verbs, cls))

    @property
    def most_tokens(self) -> int:
        """How many tokens it may write."""
        return 0

    @property
    def num_sequences(self) -> int:
        """How many sequences it may add."""
        return 0

    def to_json(self) -> dict[str, Any]:
        raise NotImplementedError

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Op":
        """Read the operation from JSON with this verb. A ScenarioError names the place `where`."""
        raise NotImplementedError


def read(data: Any, where: str) -> Op:
    """Read an operation from parsed JSON; raise ScenarioError with one clear sentence when it is wrong."""
    if not isinstance(data, dict):
        example = '{"append": "A", "text": "..."}'
        raise ScenarioError(f"{where} is {json_values.show(data)}; an operation is an object like {example}")
    verbs = [verb for verb in Op.kinds if verb in data]
    if len(verbs) != 1:
        found = ", ".join(verbs) if verbs else json_values.show(data)
        raise ScenarioError(f"{where} is {found}; an operation has exactly one of {', '.join(Op.kinds)}")
    verb = verbs[0]
    kind = Op.kinds[verb]
    json_values.only_known(data, {verb, *kind.keys}, f"{where} ({verb})")
    return kind.read(data, verb, where)


@dataclass(frozen=True)
class Add(Op, verbs=("add",), keys=("text", "tokens", "salt")):
    """A sequence arrives with a prompt. Cached prefixes are shared between sequences of one `salt` only."""

    seq_id: str
    tokens: tuple[Token, ...]
    salt: str | None = None

    def __str__(self) -> str:
        return f"add {self.seq_id} {_quote(self.tokens)}" + (f" salt {self.salt}" if self.salt is not None else "")

    @property
    def most_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_sequences(self) -> int:
        return 1

    def to_json(self) -> dict[str, Any]:
        return {"add": self.seq_id, "tokens": list(self.tokens), **_salt(self.salt)}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Add":
        return cls(*_named_tokens(data, verb, where), json_values.salt(data, where))


@dataclass(frozen=True)
class Append(Op, verbs=("append",), keys=("text", "tokens")):
    """A sequence grows by given tokens."""

    seq_id: str
    tokens: tuple[Token, ...]

    def __str__(self) -> str:
        return f"append {self.seq_id} {_quote(self.tokens)}"

    @property
    def most_tokens(self) -> int:
        return len(self.tokens)

    def to_json(self) -> dict[str, Any]:
        return {"append": self.seq_id, "tokens": list(self.tokens)}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Append":
        return cls(*_named_tokens(data, verb, where))


@dataclass(frozen=True)
class Generate(Op, verbs=("generate",), keys=("tokens",)):
    """A sequence grows by the model's own greedy tokens."""

    seq_id: str
    num_tokens: int

    def __str__(self) -> str:
        return f"generate {self.num_tokens} for {self.seq_id}"

    @property
    def most_tokens(self) -> int:
        return self.num_tokens

    def to_json(self) -> dict[str, Any]:
        return {"generate": self.seq_id, "tokens": self.num_tokens}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Generate":
        seq_id = json_values.name(data[verb], f"{where}.{verb}")
        return cls(seq_id, json_values.whole(data, "tokens", f"{where}.tokens", 1, 1, json_values.MAX_TOKENS))


@dataclass(frozen=True)
class Fork(Op, verbs=("fork",), keys=("as",)):
    """A new sequence shares every block of its parent."""

    parent: str
    seq_id: str

    def __str__(self) -> str:
        return f"fork {self.parent} as {self.seq_id}"

    @property
    def num_sequences(self) -> int:
        return 1

    def to_json(self) -> dict[str, Any]:
        return {"fork": self.parent, "as": self.seq_id}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Fork":
        if "as" not in data:
            raise ScenarioError(f'{where} (fork) needs "as", the name of the new sequence')
        return cls(json_values.name(data[verb], f"{where}.{verb}"), json_values.name(data["as"], f"{where}.as"))


@dataclass(frozen=True)
class _OfOne(Op):
    """An operation with no other field than its sequence or request."""

    seq_id: str

    def __str__(self) -> str:
        return f"{self.verbs[0]} {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {self.verbs[0]: self.seq_id}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "_OfOne":
        return cls(json_values.name(data[verb], f"{where}.{verb}"))


class Spill(_OfOne, verbs=("spill",)):
    """A sequence's blocks move to the host."""


class Reload(_OfOne, verbs=("reload",)):
    """A sequence's blocks move back to the device."""


class Free(_OfOne, verbs=("free",)):
    """A sequence is finished."""


@dataclass(frozen=True)
class Submit(
    Op,
    verbs=("submit",),
    keys=("text", "tokens", "max_tokens", "says", "priority", "salt", "samples", "beams"),
):
    """A request is submitted: a prompt, and how many tokens to generate greedily, or the given outputs `says`.

    With several `samples`, so many outputs are drawn, each by chance. With several `beams`, so many of the likeliest
    continuations are kept.
    """

    seq_id: str
    tokens: tuple[Token, ...]
    num_tokens: int
    says: tuple[Token, ...] = ()
    priority: int = 0
    salt: str | None = None
    samples: int = 1
    beams: int = 1

    def __str__(self) -> str:
        shown = f"submit {self.seq_id} {_quote(self.tokens)}, "
        shown += f"to say {_quote(self.says)}" if self.says else f"to generate {self.num_tokens}"
        shown += f", {self.samples} samples" if self.samples > 1 else ""
        shown += f", {self.beams} beams" if self.beams > 1 else ""
        shown += f", priority {self.priority}" if self.priority else ""
        return shown + (f", salt {self.salt}" if self.salt is not None else "")

    @property
    def most_tokens(self) -> int:
        return len(self.tokens) + self.num_sequences * self.num_tokens

    @property
    def num_sequences(self) -> int:
        return max(self.samples, self.beams)

    def to_json(self) -> dict[str, Any]:
        output: dict[str, Any] = {"says": list(self.says)} if self.says else {"max_tokens": self.num_tokens}
        usual = {"priority": 0, "samples": 1, "beams": 1}
        others = {key: value for key in usual if (value := getattr(self, key)) != usual[key]}
        return {"submit": self.seq_id, "tokens": list(self.tokens), **output, **others, **_salt(self.salt)}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Submit":
        seq_id, tokens = _named_tokens(data, verb, where)
        salt = json_values.salt(data, where)
        priority = json_values.whole(data, "priority", f"{where}.priority", 0, -MAX_PRIORITY, MAX_PRIORITY)
        samples, beams = (
            json_values.whole(data, key, f"{where}.{key}", 1, 1, MAX_BRANCHES) for key in ("samples", "beams")
        )
        if samples > 1 and beams > 1:
            both = f'"samples": {samples} and "beams": {beams}'
            raise ScenarioError(f"{where} (submit {seq_id}) has {both}; only one of the two may be above 1")
        if "says" not in data:
            num_tokens = json_values.whole(data, "max_tokens", f"{where}.max_tokens", 1, 1, json_values.MAX_TOKENS)
            return cls(seq_id, tokens, num_tokens, (), priority, salt, samples, beams)
        if "max_tokens" in data:
            both = '"says" and "max_tokens"'
            raise ScenarioError(f"{where} (submit {seq_id}) has {both}; the words are given or generated")
        if max(samples, beams) > 1:
            both = f'"says" and "{"samples" if samples > 1 else "beams"}"'
            raise ScenarioError(f"{where} (submit {seq_id}) has {both}; given words have only one sequence")
        says = json_values.tokens_from_json(data["says"], f"{where}.says")
        return cls(seq_id, tokens, len(says), says, priority, salt)


@dataclass(frozen=True)
class EngineSteps(Op, verbs=("step",)):
    """The engine takes so many steps. Each step schedules, computes one launch, and takes the outputs."""

    num_steps: int

    def __str__(self) -> str:
        return f"{self.num_steps} engine step{'' if self.num_steps == 1 else 's'}"

    def to_json(self) -> dict[str, Any]:
        return {"step": self.num_steps}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "EngineSteps":
        return cls(json_values.whole(data, verb, f"{where}.{verb}", 1, 1, MAX_STEPS))


class Abort(_OfOne, verbs=("abort",)):
    """A request is ended before it has all of its outputs."""


@dataclass(frozen=True)
class ResetPrefixCache(Op, verbs=("reset_prefix_cache",)):
    """Every cached prefix is forgotten, as after new weights."""

    def __str__(self) -> str:
        return "reset the prefix cache"

    def to_json(self) -> dict[str, Any]:
        return {"reset_prefix_cache": True}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "ResetPrefixCache":
        if data[verb] is not True:
            raise ScenarioError(f"{where}.{verb} is {json_values.show(data[verb])}; it must be true")
        return cls()


@dataclass(frozen=True)
class Draft(Op, verbs=("draft",), keys=("text", "tokens", "min_confidence")):
    """A sequence's next tokens are drafted. They take slots behind the model's own next token.

    The drafts are the given `tokens`, or `num_tokens` of the drafter's own. These end before the first one with a
    confidence, 0 to 1, below `min_confidence`.
    """

    seq_id: str
    num_tokens: int
    tokens: tuple[Token, ...] = ()
    min_confidence: float = 0.0

    def __str__(self) -> str:
        shown = f"draft {_quote(self.tokens) if self.tokens else self.num_tokens} for {self.seq_id}"
        return shown + (f", confidence at least {self.min_confidence:g}" if self.min_confidence else "")

    @property
    def most_tokens(self) -> int:
        return 1 + self.num_tokens

    def to_json(self) -> dict[str, Any]:
        tokens = list(self.tokens) if self.tokens else self.num_tokens
        cut = {"min_confidence": self.min_confidence} if self.min_confidence else {}
        return {"draft": self.seq_id, "tokens": tokens, **cut}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Draft":
        seq_id = json_values.name(data[verb], f"{where}.{verb}")
        cut = json_values.part(data, "min_confidence", f"{where}.min_confidence", 0.0)
        if "text" not in data and not isinstance(data.get("tokens"), list):
            return cls(seq_id, json_values.whole(data, "tokens", f"{where}.tokens", 1, 1, MAX_DRAFTS), (), cut)
        if "min_confidence" in data:
            both = 'drafts and "min_confidence"'
            raise ScenarioError(f"{where} (draft {seq_id}) has {both}; only the drafter's own have a confidence")
        tokens = json_values.text_or_tokens(data, where, f"{verb} {seq_id}")
        if len(tokens) > MAX_DRAFTS:
            raise ScenarioError(f"{where} (draft {seq_id}) has {len(tokens)} drafts; it may have {MAX_DRAFTS} at most")
        return cls(seq_id, len(tokens), tokens)


class Verify(_OfOne, verbs=("verify",)):
    """One launch computes a sequence's drafts. Those that the model chooses itself stay; the others are rolled back."""


class Store(_OfOne, verbs=("store",)):
    """A store of a sequence's full cached blocks to the host tier begins."""


@dataclass(frozen=True)
class Load(Op, verbs=("load",), keys=("salt",)):
    """A load of a prompt's blocks from the host tier begins, behind the blocks that the device has cached."""

    tokens: tuple[Token, ...]
    salt: str | None = None

    def __str__(self) -> str:
        return f"load {_quote(self.tokens)}" + (f" salt {self.salt}" if self.salt is not None else "")

    @property
    def most_tokens(self) -> int:
        return len(self.tokens)

    def to_json(self) -> dict[str, Any]:
        return {"load": list(self.tokens), **_salt(self.salt)}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "Load":
        return cls(json_values.tokens_from_json(data[verb], f"{where}.{verb}"), json_values.salt(data, where))


@dataclass(frozen=True)
class EndTransfer(Op, verbs=("finish", "fail", "cancel")):
    """A store or load ends: it finishes, it fails, or it is cancelled. `how` is the verb."""

    transfer_id: int
    how: Literal["finish", "fail", "cancel"]

    def __str__(self) -> str:
        return f"{self.how} transfer {self.transfer_id}"

    def to_json(self) -> dict[str, Any]:
        return {self.how: self.transfer_id}

    @classmethod
    def read(cls, data: JSON, verb: str, where: str) -> "EndTransfer":
        return cls(json_values.whole(data, verb, f"{where}.{verb}", 1, 1, MAX_TRANSFER_ID), cast(Any, verb))


def _named_tokens(data: JSON, verb: str, where: str) -> tuple[str, tuple[Token, ...]]:
    seq_id = json_values.name(data[verb], f"{where}.{verb}")
    return seq_id, json_values.text_or_tokens(data, where, f"{verb} {seq_id}")


def _salt(salt: str | None) -> dict[str, Any]:
    return {} if salt is None else {"salt": salt}


def _quote(tokens: tuple[Token, ...]) -> str:
    shown = " ".join(str(token) for token in tokens[:8])
    return f"“{shown}{' …' if len(tokens) > 8 else ''}”"
