from collections.abc import Iterator

from pagedviz.engine.log.snapshot import Snapshot
from pagedviz.lesson import After, Page, Question, Run
from pagedviz.scenario.settings import CacheConfig

TITLE = "Spill and reload"
CLAIM = "Cold blocks move to the host and come back bit for bit, perhaps to another place."
SEED = 10
CACHE = CacheConfig(num_blocks=10, host_blocks=4, scatter=True, auto_spill=True)

REFUSED = "It is refused: a part of A is not on the device"
RELOADED = "A is brought back first, by itself"
ON_HOST = "The word is written on the host"


def lesson(run: Run) -> Iterator[Page]:
    run.add("A", "Four score and seven years ago our")
    run.fork("A", "B")
    run.append("B", "mothers")
    run.add("C", "a whale of a tale")
    shared, own = run.state.block_tables["A"]
    yield Page(
        "Hot and cold",
        "An engine counts its steps, here one for each thing it is asked to do, and a sequence is **hot** when a recent one "
        f"scheduled it. A wrote its last word in engine step {run.state.last_scheduled['A']}, B in "
        f"{run.state.last_scheduled['B']}, C in {run.state.last_scheduled['C']}: A is the coldest. Its blocks can wait in the memory of the **host**, which is "
        "larger and slower, while the device serves the others.\n\n"
        f"A's table is [{shared}, {own}], and B's names block {shared} too.",
        Question(
            "A is spilled. How many blocks move to the host?",
            answer=_moved,
            explain=lambda after: (
                f"Only block {own}. Block {shared} is named by B, which stays on the device and needs it there. It travels "
                "when its last resident sharer does."
            ),
            unit="blocks",
        ),
    )

    run.spill("A")
    yield Page(
        "Not resident",
        f"A's logical block 1 is host block {run.state.host_tables['A'][1]} now, and its old place was poisoned. A is no "
        "longer **resident**, so no kernel may run over it. An operating system would catch the missing page and fetch it; "
        "a GPU kernel that follows a stale entry just reads somebody else's numbers.",
        Question(
            "A is asked to write a word all the same. What happens?",
            answer=lambda after: REFUSED if after.first("OperationRefused") else RELOADED,
            explain=lambda after: "Every block must be on the device before a launch. A must be reloaded first.",
            choices=(RELOADED, ON_HOST, REFUSED),
        ),
    )

    run.append("A", "fathers")
    yield Page(
        "Refused",
        "Nothing changed. B is spilled next. Block "
        f"{shared} is named by A, which has left, and by B, which is about to.",
        Question(
            "How many blocks move this time?",
            answer=_moved,
            explain=lambda after: (
                f"Both of B's: nobody resident names block {shared} any more. It moved **once**, and both tables now name "
                f"host block {after.after.host_tables['B'][0]}: sharing is the same as before."
            ),
            unit="blocks",
        ),
    )

    run.spill("B")
    run.add("D", "it was the best of times it was the worst")
    yield Page(
        "The old places are taken",
        f"D came meanwhile and took blocks {', '.join(map(str, run.state.block_tables['D']))}. A is to be reloaded. Its "
        "table gets new device blocks, in order, from the head of the free queue.",
        Question(
            "On which device block does A's logical block 0 land?",
            answer=lambda after: int(after.after.block_tables["A"][0] or 0),
            explain=lambda after: (
                f"On {after.after.block_tables['A'][0]}, the head of the queue; it was {shared} before. Only the table "
                "has to know. B shares it still, so B's entry came back with it."
            ),
            unit="block id",
        ),
    )

    run.reload("A")
    run.append("A", "fathers")
    free, residents = len(run.state.free_blocks), _residents(run.state)
    words = run.cache.block_size * free + 2
    yield Page(
        "Bit for bit",
        "A writes again. Its keys and values are, bit for bit, what they were: after every step the cache is read through "
        "the tables, on device and host, and compared with a plain log.\n\n"
        "So far somebody said whom to spill. This cache also spills **by itself** when blocks run out: the sequence "
        "scheduled longest ago goes first.",
        Question(
            f"E arrives with {words} words: {-(-words // run.cache.block_size)} blocks, and {free} are free. Who goes?",
            answer=lambda after: str(after.first("BlockSpilled").seq_id),
            explain=lambda after: (
                "Last scheduled: engine steps "
                + ", ".join(f"{after.before.last_scheduled[s]} for {s}" for s in residents)
                + f". {after.first('BlockSpilled').seq_id} was the coldest resident, and all of its blocks moved."
            ),
            choices=tuple(residents),
        ),
    )

    run.add("E", [f"w{i}" for i in range(words)])
    gone = [s for s, row in run.state.block_tables.items() if all(block is None for block in row)]
    yield Page(
        "Under pressure",
        f"E has its blocks, {', '.join(map(str, run.state.block_tables['E']))}, and {' and '.join(gone)} is whole on the "
        "host. vLLM's first engine swapped whole groups like this; V1 never does: it drops the blocks and computes the "
        "tokens again, by another prefill. Which is cheaper depends on the link, the model and the length.",
    )


def _moved(after: After) -> int:
    return sum(event.kind == "BlockSpilled" for event in after.events)


def _residents(state: Snapshot) -> list[str]:
    return [seq_id for seq_id in state.tokens if state.is_resident(seq_id)]
