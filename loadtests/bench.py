"""`make bench`: packing, generation, serving and residency, one after another, each in its own process.

Prints the tables, and exits with 1 when any objective was missed. A busy machine makes the absolute
figures small and leaves the ratios; `docs/benchmarks.md` has those that were seen.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

PROGRAMS = ("packing", "residency", "serving", "generation")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", type=Path, default=Path(os.environ.get("SERAI_STORE", "~/.cache/serai")))
    parser.add_argument(
        "--only", choices=PROGRAMS, action="append", help="run just this one; may be repeated"
    )
    chosen = parser.parse_args()
    store = str(chosen.store.expanduser())
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, load {load}")
    missed = []
    for program in chosen.only or PROGRAMS:
        print(f"\n{program}", flush=True)
        arguments = [] if program == "packing" else ["--store", store]
        code = subprocess.run(
            [sys.executable, "-m", f"loadtests.{program}", *arguments], check=False
        ).returncode
        missed += [program] if code else []
    if missed:
        sys.exit(f"\nmissed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
