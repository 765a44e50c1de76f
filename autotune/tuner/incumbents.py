"""What runs in production: launches given to a run, tried first and raced at the end beside vLLM's defaults.

``--from-command`` takes a launch line or a file that ``autotune check`` reads, ``--from-config`` a vLLM YAML or the
result of an earlier study. Each becomes one configuration of the installed vLLM on the study's model, as it was
written: its values need not lie in the search space. ``NAME=`` in front names it in the result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.check.adopt import Adopted, adopt, split_name
from autotune.check.launch import Launch
from autotune.check.read import read_launches
from autotune.engine.flags import FlagTable
from autotune.engine.releases import Releases, load_releases
from autotune.engine.vocabulary import Vocabulary
from autotune.errors import UsageError
from autotune.export.study import find_study
from autotune.host.types import Device
from autotune.space.config import LaunchConfig
from autotune.space.parameters import SearchSpace

DEFAULT_NAME = "incumbent"
TAKEN = ("default", "ours")
LENGTH = "max-model-len"
_SIZES = ("tensor-parallel-size", "pipeline-parallel-size", "data-parallel-size")


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A configuration in production: ``config`` is all that its engine gets, fixed flags included."""

    name: str
    config: LaunchConfig
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Asked:
    """One ``--from-command`` or ``--from-config`` as a person wrote it."""

    option: str
    text: str


class IncumbentReader:
    """Reads incumbents for one study.

    ``given`` are the flags of every engine, ``needed`` is the workload's longest request in tokens.
    """

    def __init__(
        self,
        table: FlagTable,
        vocabulary: Vocabulary,
        device: Device,
        space: SearchSpace,
        given: LaunchConfig,
        model: str,
        needed: int | None,
    ) -> None:
        self._table = table
        self._vocabulary = vocabulary
        self._releases: Releases = load_releases()
        self._device = device
        self._space = space
        self._given = given
        self._model = model
        self._needed = needed

    def read(self, asked: list[Asked]) -> tuple[tuple[Incumbent, ...], tuple[str, ...]]:
        """The incumbents, and what a person should know about those that need no trial of their own.

        Raises ``UsageError`` naming the option for what cannot be tried as it stands.
        """
        seen: dict[object, str] = {self._space.effective(LaunchConfig()): "vLLM's defaults"}
        found: list[Incumbent] = []
        remarks: list[str] = []
        for one in asked:
            incumbent = self._one(one, {i.name for i in found})
            meaning = self._space.effective(incumbent.config)
            if meaning in seen:
                remarks.append(f"{incumbent.name} starts the same engine as {seen[meaning]}, which stands for it.")
                continue
            seen[meaning] = incumbent.name
            found.append(incumbent)
            remarks += [f"{incumbent.name}: {note}." for note in incumbent.notes]
        return tuple(found), tuple(remarks)

    def _one(self, asked: Asked, taken: set[str]) -> Incumbent:
        name, text = split_name(asked.text, _is_file(asked.text.partition("=")[2]))
        try:
            own_name, adopted = self._adopted(asked.option, text)
            self._refuse(adopted.config)
        except UsageError as error:
            raise UsageError(f"--{asked.option} {name or _short(text)}: {error}") from error
        if name in TAKEN or name in taken:
            raise UsageError(f"--{asked.option}: the name {name} is taken. Give another: NAME={_short(text)}.")
        label = name or _free(own_name, taken)
        config = self._space.fixed.merged(adopted.config).merged(self._given)
        return Incumbent(label, config, (*adopted.notes, *self._notes(adopted)))

    def _adopted(self, option: str, text: str) -> tuple[str, Adopted]:
        path = Path(text).expanduser()
        if option == "from-config":
            if path.suffix == ".json" or path.is_dir():
                return path.stem, Adopted(find_study(text).recommendation.launch)
            if not _is_file(text):
                raise UsageError("there is no such file. Give a vLLM YAML, or the result.json of a study.")
        file, launches = read_launches(text)
        launch = self._only(launches)
        adopted = adopt(launch, self._table, self._vocabulary, self._releases)
        if adopted.config_file:
            _, below = self._adopted("from-config", adopted.config_file)
            notes = (*below.notes, *adopted.notes)
            adopted = replace(adopted, config=below.config.merged(adopted.config), notes=notes)
        return launch.name or (Path(file).stem if file else DEFAULT_NAME), adopted

    def _only(self, launches: list[Launch]) -> Launch:
        """The one launch of a file, or the one that serves the study's model."""
        if len(launches) == 1:
            return launches[0]
        same = [launch for launch in launches if any(_last(w.text) == _last(self._model) for w in launch.words)]
        if len(same) == 1:
            return same[0]
        names = ", ".join(launch.name or f"line {launch.line}" for launch in launches[:5])
        raise UsageError(f"it starts {len(launches)} vLLM servers ({names}). Give the command of one of them.")

    def _refuse(self, config: LaunchConfig) -> None:
        """Raises ``UsageError`` for what cannot be measured on this device with this workload."""
        for name in _SIZES if self._device.kind == "cuda" else ():
            size = config.get(name)
            if isinstance(size, int) and size > 1:
                raise UsageError(f"--{name} {size} needs {size} GPUs, and a study measures one. Leave it out.")
        length = config.get(LENGTH)
        if isinstance(length, int) and self._needed and 0 < length < self._needed and not self._given.get(LENGTH):
            raise UsageError(
                f"--{LENGTH} {length} is shorter than the workload's {self._needed} tokens. "
                "Choose a shorter --workload."
            )

    def _notes(self, adopted: Adopted) -> Iterator[str]:
        for flag, value in self._given.flags:
            theirs = adopted.config.get(flag)
            if theirs is not None and theirs != value:
                yield f"--{flag} {theirs} gave way to --vllm-arg {value}"
        if adopted.model and _last(adopted.model) != _last(self._model):
            yield f"it serves {adopted.model}; its flags are measured with {_last(self._model)}"


def _is_file(text: str) -> bool:
    try:
        return bool(text) and Path(text).expanduser().is_file()
    except OSError:  # a command line can be longer than a file's name may be
        return False


def _last(model: str) -> str:
    return model.rstrip("/").rsplit("/", 1)[-1].lower()


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def _free(name: str, taken: set[str]) -> str:
    """The name, with a number where it is in use."""
    name = DEFAULT_NAME if name in TAKEN else name
    return next(n for n in (name, *(f"{name} {i}" for i in range(2, 100))) if n not in taken)
