"""What one load is to do, as one picklable value."""

from dataclasses import dataclass, field

from autotune.load.types import LoadSpec, Target
from autotune.workload.prompts import PromptStream, TextScale
from autotune.workload.types import Workload


@dataclass(frozen=True, slots=True)
class Job:
    """One load on one target; several clients may share it."""

    target: Target
    workload: Workload
    load: LoadSpec
    seed: int
    point_id: str
    vocab_size: int | None
    avoid_ids: frozenset[int] = frozenset()
    text: TextScale = field(default_factory=TextScale)

    def prompts(self, client: int = 0, clients: int = 1) -> PromptStream:
        """The requests of client ``client`` of ``clients``."""
        return PromptStream(
            self.workload,
            seed=self.seed,
            point_id=self.point_id,
            vocab_size=self.vocab_size,
            avoid=self.avoid_ids,
            client=client,
            clients=clients,
            text=self.text,
        )
