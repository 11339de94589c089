"""The two files that a batch's answers go to, and what those that are written have spent."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from engine.batches import lines
from engine.batches.folder import Folder
from engine.batches.kept import Batch, File, Spent
from engine.batches.lines import Result


class Answers:
    """Good ones apart from the others. Everything but `files` blocks: call it in a thread."""

    def __init__(self, batch: Batch, folder: Folder) -> None:
        self.spent = Spent()
        self._batch = batch
        self._folder = folder
        self._output = folder.results(batch.output_id)
        self._wrong = folder.results(batch.error_id)

    def known(self) -> tuple[list[int], list[int]]:
        """The numbers of the lines that were answered before, good and wrong. Call it once."""
        good = []
        for line in self._output.lines():
            good.append(lines.number(line))
            self.spent += lines.spent(line)
        return good, [lines.number(line) for line in self._wrong.lines()]

    def append(self, results: Sequence[Result], *, good: bool) -> None:
        """All of them are on disk when this returns, or none, when it raises OSError."""
        said = [msgspec.json.encode(result) for result in results]
        (self._output if good else self._wrong).append(said)
        if good:
            self.spent = sum(map(lines.spent, said), self.spent)

    def files(self, now: float, seconds: float) -> list[File]:
        """Those with something in them, as they are kept for so long from now on."""
        batch, kind = self._batch, "batch" if self._batch.job is None else "job"
        both = ((self._output, batch.output_id, "output"), (self._wrong, batch.error_id, "error"))
        return [
            File(
                id=key,
                owner=batch.owner,
                filename=f"{batch.id}_{name}.jsonl",
                purpose=f"{kind}_output",
                bytes=results.size,
                created_at=now,
                expires_at=now + seconds,
            )
            for results, key, name in both
            if results.size
        ]

    def drop_empty(self) -> None:
        for results, key in ((self._output, self._batch.output_id), (self._wrong, self._batch.error_id)):
            if not results.size:
                self._folder.drop(key)

    def close(self) -> None:
        self._output.close()
        self._wrong.close()
