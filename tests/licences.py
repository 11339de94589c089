"""What everything that Serai needs is licensed as: `python -m tests.licences > docs/licences.md`."""

from __future__ import annotations

import re
import sys
from importlib import metadata
from importlib.metadata import Distribution

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

COPYLEFT = re.compile(r"\bA?GPL|GNU (Affero )?General Public", re.IGNORECASE)
"""Not the LGPL, which leaves a program that imports a library as it is."""
CHOICE = re.compile(r"\s+OR\s+")


def licence(found: Distribution) -> str:
    """As its metadata has it: the expression, else the classifiers, else the first line of the old field."""
    said = found.metadata
    if expression := said.get("License-Expression"):
        return expression
    classified = [
        c.split(" :: ")[-1] for c in said.get_all("Classifier") or () if c.startswith("License :: ")
    ]
    names = [name for name in classified if name != "OSI Approved"]
    if names:
        return ", ".join(names)
    old = (said.get("License") or "").strip().splitlines()
    return old[0][:60] if old else "not said"


def required(extras: tuple[str, ...] = ()) -> dict[str, Distribution]:
    """All that an installation with these extras needs, down to the last, of what is installed here."""
    found: dict[str, Distribution] = {}
    todo = [("serai", extras)]
    seen = set(todo)
    while todo:
        name, wanted = todo.pop()
        try:
            one = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue  # for another platform, or an extra that this machine has not
        found[canonicalize_name(name)] = one
        for line in one.requires or ():
            need = Requirement(line)
            if applies(need, wanted) and (key := (need.name, tuple(sorted(need.extras)))) not in seen:
                seen.add(key)
                todo.append(key)
    del found["serai"]
    return found


def applies(need: Requirement, extras: tuple[str, ...]) -> bool:
    if need.marker is None:
        return True
    here = {**default_environment(), "extra": ""}
    return any(need.marker.evaluate({**here, "extra": extra}) for extra in ("", *extras))


def binding(text: str) -> bool:
    """Whether it is a GPL or AGPL, and nothing else may be chosen."""
    return all(
        COPYLEFT.search(choice.replace("LGPL", "").replace("Lesser General", ""))
        for choice in CHOICE.split(text)
    )


def page() -> str:
    """Extras in the order in which they are declared; a package is listed where it is needed first."""
    extras = metadata.metadata("serai").get_all("Provides-Extra") or []
    lines = [
        "# Licences",
        "",
        "Made by `make licences` from the metadata of what is installed by `constraints.txt`.",
        "A part of an optional extra is installed only with that extra. No package that is always needed is",
        "under the GPL or AGPL; a test holds that. Licences of model weights are in `catalog/`.",
    ]
    listed: set[str] = set()
    for title, wanted in (("Always", ()), *((f"Extra `{extra}`", (extra,)) for extra in extras)):
        new = {name: one for name, one in required(wanted).items() if name not in listed}
        listed |= new.keys()
        lines += ["", f"## {title}", ""]
        if not new:
            lines.append("Nothing else on this platform.")
            continue
        lines += ["| package | version | licence |", "|---|---|---|"]
        rows = sorted(new.items())
        lines += [f"| {name} | {one.version} | {licence(one)} |" for name, one in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page())
