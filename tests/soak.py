"""Many operations on the engine: `make soak`, or python -m tests.soak [--operations 100000].

The state machines of `make test`, run until each has done its share of new random operations, every one followed by all
that the machine checks. Prints a table; a failure is printed as the shortest run that shows it.
"""

import argparse
import time

from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.engine.radix.test_machine import RadixMachine
from tests.engine.test_engine_machine import CacheMachine, CachingMachine
from tests.engine.test_scheduler_machine import SchedulerMachine
from tests.engine.test_server_machine import ServerMachine, TieredMachine
from tests.engine.test_tier_machine import TierMachine

ROUND = 200  # examples between two looks at the counter
SHARES = {
    SchedulerMachine: 0.2,
    ServerMachine: 0.3,
    TieredMachine: 0.2,
    CachingMachine: 0.15,
    CacheMachine: 0.05,
    TierMachine: 0.05,
    RadixMachine: 0.05,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--operations", type=int, default=100_000, help="by all machines together (default 100000)")
    operations = parser.parse_args().operations
    print("| machine | operations | seconds |\n|---|---|---|")
    for machine, share in SHARES.items():
        started, machine.operations = time.perf_counter(), 0
        while machine.operations < operations * share:
            run_state_machine_as_test(
                machine,
                settings=settings(
                    max_examples=ROUND,
                    stateful_step_count=50,
                    deadline=None,
                    database=None,
                    suppress_health_check=list(HealthCheck),
                ),
            )
        print(f"| {machine.__name__} | {machine.operations:,} | {time.perf_counter() - started:.0f} |", flush=True)


if __name__ == "__main__":
    main()
