"""What a user can do, as data: a cache and a list of operations. Parses, validates, explains.

The same scenario is a lesson's run, a link, an export and a test case. The README documents the format.
"""

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pagedviz import text
from pagedviz.engine.events import Token
from pagedviz.engine.policies import POLICIES, PROFILES
from pagedviz.engine.scheduler import Limits

VERSION = 1

# Limits, each with its unit. They keep a run within one process's memory and a learner's patience.
MAX_FILE_BYTES = 1_000_000
MAX_OPS = 1_000
MAX_TOKENS = 1_024  # written by one run, over all sequences
MAX_TOKEN_CHARACTERS = 64
MAX_NAME_CHARACTERS = 16
MAX_SEQUENCES = 256
MAX_STEPS = 1_000  # of the engine, over all operations
MAX_PRIORITY = 1_000  # and as much below 0
RANGES = {  # of the cache's numbers, both ends included; a profile with a null block needs one block more
    "num_blocks": (1, 8_192),
    "block_size": (1, 256),
    "host_blocks": (0, 8_192),
    "num_layers": (1, 4),
    "num_heads": (1, 8),
    "num_kv_heads": (1, 8),
    "head_dim": (2, 128),
}
USUAL_LIMITS = Limits()
SCHEDULER_RANGES = {"max_num_batched_tokens": (1, 1_024), "max_num_seqs": (1, 256)}
MAX_CACHE_BYTES = 256 * 2**20  # K and V, all layers, device and host, in float32


class ScenarioError(ValueError):
    """A scenario is wrong: one sentence that says where, names the value, and says what would be right."""


@dataclass(frozen=True)
class CacheConfig:
    """The cache and the toy model that fills it. `num_blocks` counts the null block of profile vllm-v1."""

    num_blocks: int = 12
    block_size: int = 4
    host_blocks: int = 6
    num_layers: int = 2
    num_heads: int = 2
    num_kv_heads: int = 1
    head_dim: int = 8
    profile: str = "vllm-v0"
    prefix_caching: bool = False
    scatter: bool = False
    auto_spill: bool = False
    fork: bool = False
    scheduler: Limits = USUAL_LIMITS
    policies: tuple[tuple[str, str], ...] = ()  # (kind, name) of those that are not the profile's own, by kind

    def to_json(self) -> dict[str, Any]:
        """Without the scheduler's limits and the policies where they are the usual ones."""
        data = dataclasses.asdict(self)
        if self.scheduler == USUAL_LIMITS:
            del data["scheduler"]
        data["policies"] = dict(self.policies)
        if not self.policies:
            del data["policies"]
        return data

    @property
    def bytes_per_block(self) -> int:
        """K and V of one block in all layers, float32."""
        return 2 * self.num_layers * self.block_size * self.num_kv_heads * self.head_dim * 4


@dataclass(frozen=True)
class Add:
    """A sequence arrives with a prompt. Cached prefixes are shared between sequences of one `salt` only."""

    seq_id: str
    tokens: tuple[Token, ...]
    salt: str | None = None

    def __str__(self) -> str:
        return f"add {self.seq_id} {_quote(self.tokens)}" + (f" salt {self.salt}" if self.salt is not None else "")

    def to_json(self) -> dict[str, Any]:
        salt = {} if self.salt is None else {"salt": self.salt}
        return {"add": self.seq_id, "tokens": list(self.tokens), **salt}


@dataclass(frozen=True)
class Append:
    """A sequence grows by given tokens."""

    seq_id: str
    tokens: tuple[Token, ...]

    def __str__(self) -> str:
        return f"append {self.seq_id} {_quote(self.tokens)}"

    def to_json(self) -> dict[str, Any]:
        return {"append": self.seq_id, "tokens": list(self.tokens)}


@dataclass(frozen=True)
class Generate:
    """A sequence grows by the model's own greedy tokens."""

    seq_id: str
    num_tokens: int

    def __str__(self) -> str:
        return f"generate {self.num_tokens} for {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"generate": self.seq_id, "tokens": self.num_tokens}


@dataclass(frozen=True)
class Fork:
    """A new sequence shares every block of its parent."""

    parent: str
    seq_id: str

    def __str__(self) -> str:
        return f"fork {self.parent} as {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"fork": self.parent, "as": self.seq_id}


@dataclass(frozen=True)
class Spill:
    """A sequence's blocks move to the host."""

    seq_id: str

    def __str__(self) -> str:
        return f"spill {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"spill": self.seq_id}


@dataclass(frozen=True)
class Reload:
    """A sequence's blocks come back to the device."""

    seq_id: str

    def __str__(self) -> str:
        return f"reload {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"reload": self.seq_id}


@dataclass(frozen=True)
class Free:
    """A sequence is finished."""

    seq_id: str

    def __str__(self) -> str:
        return f"free {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"free": self.seq_id}


@dataclass(frozen=True)
class Submit:
    """A request waits to be served: a prompt, and how many tokens to generate, greedily; or the words it `says`."""

    seq_id: str
    tokens: tuple[Token, ...]
    num_tokens: int
    says: tuple[Token, ...] = ()
    priority: int = 0
    salt: str | None = None

    def __str__(self) -> str:
        shown = f"submit {self.seq_id} {_quote(self.tokens)}, "
        shown += f"to say {_quote(self.says)}" if self.says else f"to generate {self.num_tokens}"
        shown += f", priority {self.priority}" if self.priority else ""
        return shown + (f", salt {self.salt}" if self.salt is not None else "")

    def to_json(self) -> dict[str, Any]:
        output: dict[str, Any] = {"says": list(self.says)} if self.says else {"max_tokens": self.num_tokens}
        priority = {"priority": self.priority} if self.priority else {}
        salt = {} if self.salt is None else {"salt": self.salt}
        return {"submit": self.seq_id, "tokens": list(self.tokens), **output, **priority, **salt}


@dataclass(frozen=True)
class EngineSteps:
    """The engine takes so many steps: each schedules, computes in one launch, and takes the outputs."""

    num_steps: int

    def __str__(self) -> str:
        return f"{self.num_steps} step{'' if self.num_steps == 1 else 's'}"

    def to_json(self) -> dict[str, Any]:
        return {"step": self.num_steps}


@dataclass(frozen=True)
class Abort:
    """A request is forgotten, wherever it is."""

    seq_id: str

    def __str__(self) -> str:
        return f"abort {self.seq_id}"

    def to_json(self) -> dict[str, Any]:
        return {"abort": self.seq_id}


@dataclass(frozen=True)
class ResetPrefixCache:
    """Every cached prefix is forgotten, as after new weights."""

    def __str__(self) -> str:
        return "reset the prefix cache"

    def to_json(self) -> dict[str, Any]:
        return {"reset_prefix_cache": True}


Op = Add | Append | Generate | Fork | Spill | Reload | Free | Submit | EngineSteps | Abort | ResetPrefixCache


def _quote(tokens: tuple[Token, ...]) -> str:
    shown = " ".join(str(token) for token in tokens[:8])
    return f"“{shown}{' …' if len(tokens) > 8 else ''}”"


@dataclass(frozen=True)
class Scenario:
    """A seed, a cache, and what is done to it, in order."""

    seed: int = 0
    cache: CacheConfig = CacheConfig()
    ops: tuple[Op, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {
            "pagedviz": VERSION,
            "seed": self.seed,
            "cache": self.cache.to_json(),
            "ops": [op.to_json() for op in self.ops],
        }

    def to_text(self) -> str:
        """Canonical JSON, one operation a line: equal scenarios give equal text."""
        head = json.dumps({k: v for k, v in self.to_json().items() if k != "ops"}, ensure_ascii=False)
        ops = ",\n  ".join(json.dumps(op.to_json(), ensure_ascii=False) for op in self.ops)
        return f'{head[:-1]},\n "ops": [\n  {ops}\n ]}}\n' if ops else f'{head[:-1]}, "ops": []}}\n'

    def with_ops(self, *ops: Op) -> "Scenario":
        """This scenario with more operations at its end; raises ScenarioError when a limit is passed."""
        return _checked(dataclasses.replace(self, ops=self.ops + ops))


# --- parsing ---


def parse(source: str | bytes) -> Scenario:
    """Read a scenario from JSON text; raise ScenarioError with one clear sentence when it is wrong."""
    if len(source) > MAX_FILE_BYTES:
        raise ScenarioError(f"the file has {len(source):,} bytes; a scenario has at most {MAX_FILE_BYTES:,}")
    try:
        data = json.loads(source)
    except UnicodeDecodeError:
        raise ScenarioError("the file is not text in UTF-8, so it is no scenario") from None
    except json.JSONDecodeError as error:
        raise ScenarioError(
            f'the file is not JSON, line {error.lineno}; a scenario begins with {{"pagedviz": 1'
        ) from None
    except RecursionError:
        raise ScenarioError("the file is nested too deeply to be a scenario") from None
    except ValueError:  # Python reads no longer integer
        raise ScenarioError("the file holds a number of more than 4,300 digits, so it is no scenario") from None
    return from_json(data)


def from_json(data: Any) -> Scenario:
    """Read a scenario from parsed JSON; raise ScenarioError with one clear sentence when it is wrong."""
    if not isinstance(data, dict):
        raise ScenarioError(f'a scenario is an object like {{"pagedviz": 1, "ops": [...]}}, not {show(data)}')
    if "pagedviz" not in data:
        raise ScenarioError('"pagedviz" is missing; a scenario says "pagedviz": 1')
    if data["pagedviz"] != VERSION or isinstance(data["pagedviz"], bool):
        raise ScenarioError(f'"pagedviz" is {show(data["pagedviz"])}; this program reads version {VERSION}')
    if "fork" in data and isinstance(data.get("cache", {}), dict):  # may stand beside the cache, too
        data = {**data, "cache": {**data.get("cache", {}), "fork": data["fork"]}}
        del data["fork"]
    _only_known(data, {"pagedviz", "seed", "cache", "ops"}, "the scenario")
    ops = data.get("ops", [])
    if not isinstance(ops, list):
        raise ScenarioError(f'"ops" is {show(ops)}; it must be a list of operations')
    if len(ops) > MAX_OPS:
        raise ScenarioError(f'"ops" has {len(ops):,} operations; a run has at most {MAX_OPS:,}')
    scenario = Scenario(
        seed=_integer(data, "seed", "seed", 0, 0, 2**63 - 1),
        cache=cache_from_json(data.get("cache", {})),
        ops=tuple(_op(op, f"ops[{i}]") for i, op in enumerate(ops)),
    )
    return _checked(scenario)


def cache_from_json(data: Any) -> CacheConfig:
    """Read the cache settings; absent keys take their defaults."""
    if not isinstance(data, dict):
        raise ScenarioError(f'"cache" is {show(data)}; it must be an object of settings')
    default = CacheConfig()
    _only_known(data, {field.name for field in dataclasses.fields(CacheConfig)}, "cache")
    profile = data.get("profile", default.profile)
    if not isinstance(profile, str) or profile not in PROFILES:
        raise ScenarioError(f"cache.profile is {show(profile)}; it must be one of {', '.join(PROFILES)}")

    def number(name: str, more: int = 0) -> int:
        low, high = RANGES[name]
        return _integer(data, name, f"cache.{name}", getattr(default, name), low + more, high)

    def switch(name: str) -> bool:
        value = data.get(name, getattr(default, name))
        if not isinstance(value, bool):
            raise ScenarioError(f"cache.{name} is {show(value)}; it must be true or false")
        return value

    cache = CacheConfig(
        num_blocks=number("num_blocks", more=PROFILES[profile].null_block),
        block_size=number("block_size"),
        host_blocks=number("host_blocks"),
        num_layers=number("num_layers"),
        num_heads=number("num_heads"),
        num_kv_heads=number("num_kv_heads"),
        head_dim=number("head_dim"),
        profile=profile,
        prefix_caching=switch("prefix_caching"),
        scatter=switch("scatter"),
        auto_spill=switch("auto_spill"),
        fork=switch("fork"),
        scheduler=_limits(data.get("scheduler", {})),
        policies=_policies(data.get("policies", {}), profile),
    )
    if cache.num_heads % cache.num_kv_heads:
        raise ScenarioError(
            f"cache.num_heads is {cache.num_heads} and cache.num_kv_heads is {cache.num_kv_heads}; "
            "every KV head serves the same number of query heads, so the first must be a multiple of the second"
        )
    if cache.head_dim % 2:
        raise ScenarioError(f"cache.head_dim is {cache.head_dim}; rotary positions turn pairs, so it must be even")
    total = cache.bytes_per_block * (cache.num_blocks + cache.host_blocks)
    if total > MAX_CACHE_BYTES:
        raise ScenarioError(
            f"the pools would hold {total / 2**20:,.0f} MiB of K and V; the limit is {MAX_CACHE_BYTES // 2**20} MiB: "
            "take fewer or smaller blocks, layers or heads"
        )
    return cache


def _limits(data: Any) -> Limits:
    if not isinstance(data, dict):
        raise ScenarioError(f"cache.scheduler is {show(data)}; it must be an object of settings")
    default = Limits()
    _only_known(data, {field.name for field in dataclasses.fields(Limits)}, "cache.scheduler")
    watermark = data.get("watermark", default.watermark)
    if isinstance(watermark, bool) or not isinstance(watermark, int | float) or not 0 <= watermark < 1:
        raise ScenarioError(
            f"cache.scheduler.watermark is {show(watermark)}; it must be a number from 0 up to, not including, 1"
        )
    numbers = {
        name: _integer(data, name, f"cache.scheduler.{name}", getattr(default, name), low, high)
        for name, (low, high) in SCHEDULER_RANGES.items()
    }
    return Limits(**numbers, watermark=float(watermark))


def _policies(data: Any, profile: str) -> tuple[tuple[str, str], ...]:
    """The choices that differ from the profile's, by kind."""
    if not isinstance(data, dict):
        example = '{"victim": "least_urgent"}'
        raise ScenarioError(f"cache.policies is {show(data)}; it must be an object like {example}")
    _only_known(data, set(POLICIES), "cache.policies")
    for kind, name in data.items():
        names = [function.__name__ for function in POLICIES[kind]]
        if name not in names:
            raise ScenarioError(f"cache.policies.{kind} is {show(name)}; it must be one of {', '.join(names)}")
    chosen = {kind: getattr(PROFILES[profile], kind).__name__ for kind in POLICIES} | data
    if chosen["publish"] == "when_scheduled" and chosen["duplicates"] != "kept":
        raise ScenarioError(
            f"cache.policies.duplicates is {chosen['duplicates']} and publish is when_scheduled; a block that the same "
            "launch fills may have been hit already and must be kept, so publish must be when_written"
        )
    return tuple(sorted((k, name) for k, name in data.items() if name != getattr(PROFILES[profile], k).__name__))


def tokens_from_text(source: str, where: str = "text") -> tuple[Token, ...]:
    """Split text into tokens; raise ScenarioError when there are none or one is too long."""
    tokens: tuple[Token, ...] = tuple(text.split(source))
    if not tokens:
        raise ScenarioError(f"{where} is {show(source)}; it needs at least one word")
    return _tokens(tokens, where)


def _op(data: Any, where: str) -> Op:
    if not isinstance(data, dict):
        raise ScenarioError(f'{where} is {show(data)}; an operation is an object like {{"append": "A", "text": "..."}}')
    verbs = [verb for verb in _VERBS if verb in data]
    if len(verbs) != 1:
        found = ", ".join(verbs) if verbs else show(data)
        raise ScenarioError(f"{where} is {found}; an operation has exactly one of {', '.join(_VERBS)}")
    verb = verbs[0]
    read, fields = _VERBS[verb]
    _only_known(data, {verb, *fields}, f"{where} ({verb})")
    return read(data, where)


def _read_tokens(data: Mapping[str, Any], verb: str, where: str) -> tuple[str, tuple[Token, ...]]:
    seq_id = _name(data[verb], f"{where}.{verb}")
    if ("text" in data) == ("tokens" in data):
        raise ScenarioError(f'{where} ({verb} {seq_id}) needs either "text" or "tokens"')
    if "text" in data:
        if not isinstance(data["text"], str):
            raise ScenarioError(f"{where}.text is {show(data['text'])}; it must be a string")
        return seq_id, tokens_from_text(data["text"], f"{where}.text")
    tokens = data["tokens"]
    if not isinstance(tokens, list) or not tokens:
        raise ScenarioError(f"{where}.tokens is {show(tokens)}; it must be a list of at least one string or integer")
    return seq_id, _tokens(tuple(tokens), f"{where}.tokens")


def _tokens(tokens: tuple[Any, ...], where: str) -> tuple[Token, ...]:
    if len(tokens) > MAX_TOKENS:
        raise ScenarioError(f"{where} has {len(tokens):,} tokens; a run writes at most {MAX_TOKENS:,}")
    for i, token in enumerate(tokens):
        if isinstance(token, bool) or not isinstance(token, str | int):
            raise ScenarioError(f"{where}[{i}] is {show(token)}; a token is a string or an integer")
        if isinstance(token, str) and not 0 < len(token) <= MAX_TOKEN_CHARACTERS:
            long = f"{show(token)} and has {len(token):,} characters"
            raise ScenarioError(f"{where}[{i}] is {long}; a token has 1 to {MAX_TOKEN_CHARACTERS}")
        if isinstance(token, str) and not _is_text(token):
            raise ScenarioError(f"{where}[{i}] is {show(token)}; half of a surrogate pair is no character")
        if isinstance(token, int) and not -(2**53) < token < 2**53:
            raise ScenarioError(f"{where}[{i}] is {show(token)}; an integer token lies between -2**53 and 2**53")
    return tokens


def _add(data: Mapping[str, Any], where: str) -> Op:
    salt = None if data.get("salt") is None else _name(data["salt"], f"{where}.salt", "a salt")
    return Add(*_read_tokens(data, "add", where), salt)


def _append(data: Mapping[str, Any], where: str) -> Op:
    return Append(*_read_tokens(data, "append", where))


def _generate(data: Mapping[str, Any], where: str) -> Op:
    seq_id = _name(data["generate"], f"{where}.generate")
    return Generate(seq_id, _integer(data, "tokens", f"{where}.tokens", 1, 1, MAX_TOKENS))


def _fork(data: Mapping[str, Any], where: str) -> Op:
    if "as" not in data:
        raise ScenarioError(f'{where} (fork) needs "as", the name of the new sequence')
    return Fork(_name(data["fork"], f"{where}.fork"), _name(data["as"], f"{where}.as"))


def _submit(data: Mapping[str, Any], where: str) -> Op:
    seq_id, tokens = _read_tokens(data, "submit", where)
    salt = None if data.get("salt") is None else _name(data["salt"], f"{where}.salt", "a salt")
    priority = _integer(data, "priority", f"{where}.priority", 0, -MAX_PRIORITY, MAX_PRIORITY)
    if "says" not in data:
        return Submit(
            seq_id, tokens, _integer(data, "max_tokens", f"{where}.max_tokens", 1, 1, MAX_TOKENS), (), priority, salt
        )
    if "max_tokens" in data:
        raise ScenarioError(f'{where} (submit {seq_id}) has "says" and "max_tokens"; the words are given or generated')
    says = data["says"]
    if isinstance(says, str):
        says = list(tokens_from_text(says, f"{where}.says"))
    if not isinstance(says, list) or not says:
        raise ScenarioError(f"{where}.says is {show(says)}; it must be text or a list of at least one token")
    return Submit(seq_id, tokens, len(says), _tokens(tuple(says), f"{where}.says"), priority, salt)


def _engine_steps(data: Mapping[str, Any], where: str) -> Op:
    return EngineSteps(_integer(data, "step", f"{where}.step", 1, 1, MAX_STEPS))


def _reset(data: Mapping[str, Any], where: str) -> Op:
    if data["reset_prefix_cache"] is not True:
        raise ScenarioError(f"{where}.reset_prefix_cache is {show(data['reset_prefix_cache'])}; it must be true")
    return ResetPrefixCache()


def _named(make: Callable[[str], Op], verb: str) -> Callable[[Mapping[str, Any], str], Op]:
    return lambda data, where: make(_name(data[verb], f"{where}.{verb}"))


_VERBS: dict[str, tuple[Callable[[Mapping[str, Any], str], Op], tuple[str, ...]]] = {
    "add": (_add, ("text", "tokens", "salt")),
    "append": (_append, ("text", "tokens")),
    "generate": (_generate, ("tokens",)),
    "fork": (_fork, ("as",)),
    "spill": (_named(Spill, "spill"), ()),
    "reload": (_named(Reload, "reload"), ()),
    "free": (_named(Free, "free"), ()),
    "submit": (_submit, ("text", "tokens", "max_tokens", "says", "priority", "salt")),
    "step": (_engine_steps, ()),
    "abort": (_named(Abort, "abort"), ()),
    "reset_prefix_cache": (_reset, ()),
}


def _checked(scenario: Scenario) -> Scenario:
    """The limits that concern the whole run."""
    if len(scenario.ops) > MAX_OPS:
        raise ScenarioError(f"the run has {len(scenario.ops):,} operations; it may have at most {MAX_OPS:,}")
    written = sum(_num_tokens(op) for op in scenario.ops)
    if written > MAX_TOKENS:
        raise ScenarioError(f"the run writes {written:,} tokens; it may write at most {MAX_TOKENS:,}")
    steps = sum(op.num_steps for op in scenario.ops if isinstance(op, EngineSteps))
    if steps > MAX_STEPS:
        raise ScenarioError(f"the run takes {steps:,} engine steps; it may take at most {MAX_STEPS:,}")
    made = sum(isinstance(op, Add | Fork | Submit) for op in scenario.ops)
    if made > MAX_SEQUENCES:
        raise ScenarioError(f"the run makes {made:,} sequences; it may make at most {MAX_SEQUENCES:,}")
    return scenario


def _num_tokens(op: Op) -> int:
    """How many tokens an operation may bring into the cache."""
    match op:
        case Add() | Append():
            return len(op.tokens)
        case Generate():
            return op.num_tokens
        case Submit():
            return len(op.tokens) + op.num_tokens
    return 0


def _name(value: Any, where: str, what: str = "a sequence's name") -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > MAX_NAME_CHARACTERS or not value.isprintable():
        raise ScenarioError(f"{where} is {show(value)}; {what} has 1 to {MAX_NAME_CHARACTERS} printable characters")
    return value


def _integer(data: Mapping[str, Any], key: str, where: str, default: int, low: int, high: int) -> int:
    value = data.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ScenarioError(f"{where} is {show(value)}; it must be a whole number from {low:,} to {high:,}")
    return value


def _only_known(data: Mapping[str, Any], known: set[str], where: str) -> None:
    for key in data:
        if key not in known:
            raise ScenarioError(f"{where} has {show(key)}, which is unknown; it may have {', '.join(sorted(known))}")


def show(value: Any) -> str:
    """A value in an error sentence: as JSON, and short."""
    try:
        shown = json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError:
        return "nested too deeply to show"
    shown = shown.encode("utf-8", "backslashreplace").decode()
    return shown if len(shown) <= 60 else f"{shown[:57]}..."


def _is_text(value: str) -> bool:
    """It can be written as UTF-8. JSON lets half of a surrogate pair through, which no file, link or screen takes."""
    return not any("\ud800" <= character <= "\udfff" for character in value)
