"""The child that runs docling, which may set torch's threads for its whole process and may leak."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from engine.adapters.documents.worker import Handle, serve

UNNEEDED = ("torch", "transformers", "cv2")
"""docling imports them where it finds them, for formats that are not served here: 2.7 s and 230 MB."""


def prepare(setup: Mapping[str, Any]) -> Handle:
    if setup:
        from functools import partial

        from engine.adapters.documents import conversion, standard

        return partial(conversion.convert, read_pdf=standard.reader(setup))
    sys.modules.update(dict.fromkeys(UNNEEDED))  # type: ignore[arg-type]  # their import fails now
    from engine.adapters.documents.conversion import convert

    return convert


if __name__ == "__main__":
    serve(prepare)
