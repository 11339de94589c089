"""A model that sleeps in a process of its own, its weights in host memory."""

from __future__ import annotations

from typing import cast

from engine.adapters.family import GenerativeModel, Model, Sleeping


class Asleep:
    """Between `begin` and `wake` or `end`. Each is work for its device's loading threads."""

    def __init__(self, model: Sleeping) -> None:
        self.nbytes = 0
        self._model = model
        self._awake = False

    def begin(self) -> None:
        """When it raises, the model is gone."""
        self.nbytes = self._model.sleep()

    def wake(self) -> Model | GenerativeModel:
        self._model.wake()
        self._awake = True
        return cast(GenerativeModel, self._model)  # what sleeps has run before

    def end(self) -> None:
        """The host memory is given back: with the model, unless it is awake."""
        if not self._awake:
            self._model.unload()
