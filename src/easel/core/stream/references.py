"""References from runs and canvases to artifacts, and which of them can be released.

A reference keeps its artifact. Owns the decision which references are released after a log was shortened.
Does not know stores: they pass the rows, and delete what is released.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from easel.core.stream.marker import from_bytes, markers_in, mentioned_artifacts
from easel.ids import AccountId, ArtifactId, RunId

RUNS_START = RunId("")


@dataclass(frozen=True, slots=True)
class PrunedRuns:
    """The runs in one page of references whose log was pruned since their references were checked.

    `next` is None after the last page.
    """

    run_ids: Sequence[RunId]
    next: RunId | None


@dataclass(frozen=True, slots=True)
class RunContent:
    """The content of a run after its log was pruned, as far as it names artifacts.

    `texts` are JSON: messages, the values of boards, the remaining events.
    """

    account_id: AccountId
    references: frozenset[ArtifactId]
    texts: Sequence[str]

    @property
    def mentioned(self) -> frozenset[ArtifactId]:
        """The artifacts that the content names."""
        return _mentioned_in(self.texts)

    @property
    def offloaded(self) -> frozenset[ArtifactId]:
        """The artifacts with values that were offloaded from this content. They may name artifacts too."""
        found = (markers_in(from_bytes(text)) for text in self.texts)
        return frozenset[ArtifactId]().union(*found) & self.references


@dataclass(frozen=True, slots=True)
class ReleaseDecision:
    """`released` references are deleted; `kept` ones are checked again after the log has moved on."""

    released: Sequence[ArtifactId]
    kept: Sequence[ArtifactId]


def decide_release(positions: Mapping[ArtifactId, int | None], *texts: str) -> ReleaseDecision:
    """Decide about references of a canvas that no event and no record of it mentions.

    `texts` are the state, the spec and the specs of versions. `positions` has the log position of the last
    mention of each. It is None if it is not known: the log must move past its present end
    before it is known that no event mentions the artifact.
    """
    mentioned = _mentioned_in(texts)
    is_released = {name: seq is not None and name not in mentioned for name, seq in positions.items()}
    return ReleaseDecision(
        [name for name in positions if is_released[name]],
        [name for name in positions if not is_released[name]],
    )


def _mentioned_in(texts: Iterable[str]) -> frozenset[ArtifactId]:
    return frozenset[ArtifactId]().union(*map(mentioned_artifacts, texts))
