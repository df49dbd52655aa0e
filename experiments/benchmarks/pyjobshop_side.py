"""Run by the interpreter of an environment that has PyJobShop: plans the flexible job shop on standard input.

Imports nothing of this project. Input and output are one JSON object each, see `beside_pyjobshop`.
"""

import json
import sys

from pyjobshop import Model


def main() -> None:
    """Print value, bound and seconds of PyJobShop's plan."""
    asked = json.load(sys.stdin)
    model = Model()
    machines = [model.add_machine() for _ in range(asked["machines"])]
    for operations in asked["jobs"]:
        job, before = model.add_job(), None
        for choices in operations:
            task = model.add_task(job=job)
            for machine, time in choices:
                model.add_mode(task, [machines[machine]], time)
            if before is not None:
                model.add_end_before_start(before, task)
            before = task
    result = model.solve(time_limit=asked["seconds"], num_workers=asked["workers"], display=False)
    found = {"value": result.objective, "bound": result.lower_bound, "seconds": result.runtime}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
