"""`make bench`: every load test but the soak, one after another, each in its own process; half an hour.

Prints the tables, and exits with 1 when any objective was missed. A busy machine makes the absolute
figures small and leaves the ratios; `docs/benchmarks.md` has those that were seen. The soak takes ten
minutes more and runs when it is named: `make bench ARGS="--only soak"`.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

STORED = ("residency", "swap", "serving", "generation")
"""Programs that take the directory of the weights; the live ones find it in the environment."""

PROGRAMS = (
    "packing",
    *STORED,
    "scheduling_cost",
    "burst",
    "starvation",
    "priority",
    "many_models",
    "load_beside",
)
LIVE = ("burst", "many_models")
"""These run a second time, against a real server."""


def runs(program: str, store: str) -> list[list[str]]:
    """Arguments of each run of it."""
    return [["--store", store] if program in STORED else [], *([["--live"]] if program in LIVE else [])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path(os.environ.get("SERAI_STORE", "~/.cache/serai")))
    parser.add_argument(
        "--only", choices=(*PROGRAMS, "soak"), action="append", help="run just this one; may be repeated"
    )
    chosen = parser.parse_args()
    store = str(chosen.store.expanduser())
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load}")
    missed = []
    for program in chosen.only or PROGRAMS:
        for arguments in runs(program, store):
            name = " ".join([program, *(a for a in arguments if a == "--live")])
            print(f"\n{name}", flush=True)
            command = [sys.executable, "-m", f"loadtests.{program}", *arguments]
            environment = os.environ | {"SERAI_TEST_STORE": store}
            if subprocess.run(command, env=environment, check=False).returncode:
                missed.append(name)
    if missed:
        sys.exit(f"\nmissed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
