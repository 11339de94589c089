"""Things in images, by an SSD graph of TensorFlow's object detection zoo, run by OpenCV.

Runs on the CPU, in one slot at a time: a network of OpenCV holds its inputs and outputs itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from engine.adapters.family import Footprint, Prepared
from engine.adapters.forward.weights import BadWeights
from engine.adapters.labelling.labels import Chosen, Labels
from engine.adapters.preparing.images import decode, header
from engine.adapters.preparing.kinds import extract_options, only_image
from engine.adapters.vision.pictures import SOURCE_PIXELS
from engine.catalog import ModelSpec
from engine.devices.host import trim
from engine.errors import EngineError, InvalidInput, NotFinite
from engine.requests import Detection, Extracted, Item, Media, Options, Output, Task, Usage

IMAGES_AT_ONCE = 4
COPIES = 3
"""Measured: 91 MB when the 70 MB graph is read, 209 MB once OpenCV laid its weights out to run."""
WORKSPACE_PER_COST = 360.0
"""Measured: 32 MB for each further image of 300 x 300 in a batch."""
ROW = 7
"""Numbers of a found thing: image, class, score, left, top, right, bottom (0 to 1)."""


@dataclass(frozen=True, slots=True)
class DetectJob:
    image: Media
    index: int
    asked: Chosen
    threshold: float


class DetectPreparer:
    """Reads headers, and says early what the model cannot find."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self._labels = Labels(spec.id, spec.options["classes"].values(), spec.labels)
        self._pixels = int(spec.options["size"]) ** 2

    def prepare(self, task: Task, items: Sequence[Item], options: Options) -> list[Prepared | EngineError]:
        extract = extract_options(task, options)
        asked = self._labels.choose(extract.labels)
        threshold = extract.threshold
        if threshold is None:
            threshold = float(self._spec.options.get("threshold", 0.0))
        return [self._one(item, index, asked, threshold) for index, item in enumerate(items)]

    def _one(self, item: Item, index: int, asked: Chosen, threshold: float) -> Prepared | EngineError:
        try:
            image = only_image(item)
            source = header(image).pixels
        except EngineError as error:
            return error.at(index)
        cost = self._pixels + source // SOURCE_PIXELS
        return Prepared(cost, DetectJob(image, index, asked, threshold), len(image.data), Usage(images=1))


class Detector:
    """A network of OpenCV, which gives all images' things in one list."""

    def __init__(self, network: Any, size: int, classes: Mapping[int, str]) -> None:
        self._network = network
        self._size = size
        self._classes = dict(classes)

    def warm(self) -> None:
        """OpenCV lays weights out anew when it first runs; that is part of the load."""
        self._found([np.zeros((self._size, self._size, 3), np.uint8)])

    def run(self, jobs: Sequence[Prepared]) -> Sequence[Output | EngineError]:
        payloads = [cast(DetectJob, job.payload) for job in jobs]
        answers: list[Output | EngineError] = []
        for start in range(0, len(payloads), IMAGES_AT_ONCE):
            answers += self._some(payloads[start : start + IMAGES_AT_ONCE])
        return answers

    def unload(self) -> None:
        self._network = None
        trim()

    def _some(self, payloads: Sequence[DetectJob]) -> list[Output | EngineError]:
        answers: list[Output | EngineError] = []
        pixels: list[NDArray[np.uint8]] = []
        sizes: dict[int, tuple[int, int]] = {}
        for place, payload in enumerate(payloads):
            answers.append(Extracted())
            try:
                image = decode(payload.image)
            except InvalidInput as error:
                answers[place] = error.at(payload.index)
                continue
            sizes[place] = image.size
            pixels.append(cv2.resize(np.asarray(image), (self._size, self._size)).astype(np.uint8))
        if pixels:
            rows = self._found(pixels)
            for number, (place, size) in enumerate(sizes.items()):
                answers[place] = self._answer(rows[rows[:, 0] == number], size, payloads[place])
        return answers

    def _found(self, pixels: Sequence[NDArray[np.uint8]]) -> NDArray[np.float32]:
        self._network.setInput(cv2.dnn.blobFromImages(pixels))
        rows: NDArray[np.float32] = self._network.forward().reshape(-1, ROW)
        return rows

    def _answer(
        self, rows: NDArray[np.float32], size: tuple[int, int], job: DetectJob
    ) -> Extracted | EngineError:
        if not np.isfinite(rows).all():
            return NotFinite()
        scale = np.array([*size, *size], np.float32)
        found = []
        for row in rows[np.argsort(-rows[:, 2], kind="stable")]:
            name = job.asked.name(self._classes.get(int(row[1]), ""))
            if name is not None and row[2] >= job.threshold:
                left, top, right, bottom = (row[3:].clip(0, 1) * scale).tolist()
                found.append(Detection(name, float(row[2]), (left, top, right, bottom)))
        return Extracted(objects=tuple(found))


class DetectorFamily:
    """A frozen graph (`*.pb`) and its description (`*.pbtxt`); the entry's options name its `classes` by
    number and the `size` of its square input."""

    cost_unit: ClassVar[str] = "pixels"
    tasks: ClassVar[frozenset[Task]] = frozenset([Task.EXTRACT])

    def footprint(self, spec: ModelSpec, path: Path) -> Footprint:
        graph, _ = _files(path)
        return Footprint(COPIES * graph.stat().st_size, 0, WORKSPACE_PER_COST)

    def preparer(self, spec: ModelSpec, path: Path) -> DetectPreparer:
        return DetectPreparer(spec)

    def load(self, spec: ModelSpec, path: Path, device: str) -> Detector:
        # one thread a slot, as everywhere; OpenCV has this setting for its process only
        cv2.setNumThreads(1)
        graph, description = _files(path)
        network = cv2.dnn.readNetFromTensorflow(str(graph), str(description))
        detector = Detector(network, int(spec.options["size"]), spec.options["classes"])
        detector.warm()
        return detector


def _files(path: Path) -> tuple[Path, Path]:
    graphs, descriptions = sorted(path.glob("*.pb")), sorted(path.glob("*.pbtxt"))
    if len(graphs) != 1 or len(descriptions) != 1:
        raise BadWeights(
            f"{path} holds {len(graphs)} graphs and {len(descriptions)} descriptions; one is wanted"
        )
    return graphs[0], descriptions[0]


FAMILY = DetectorFamily()
