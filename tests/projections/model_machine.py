"""The restore machine over all four projections, beside a twin whose every answer is judged by a second reading of the
contract that shares no code."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant

from engine.testing.machine import RestoreMachine
from engine.testing.machine_base import kept
from engine.testing.twin import Answer, Asked, Twin, would
from projections.model import MODEL
from tests.projections import model_vocabulary as vocabulary
from tests.projections.model_oracle import Whole
from tests.projections.model_shell import indexes

__all__ = ["SEEN", "WholeRun"]

SEEN: Counter[str] = Counter()
"""Steps, commands that were judged, and what led from one projection into another."""


class JudgedTwin(Twin):
    """A twin whose every answer is judged by the second reading. ``whole`` is None where that cannot follow: in a fork
    that was cut inside a commit."""

    def __init__(self, run_id: str, whole: Whole | None) -> None:
        super().__init__(MODEL, run_id)
        self.whole = whole
        self.images: dict[int, bytes] = {0: pickle.dumps(Whole())}
        """What the second reading was at the ends of commands."""

    def ask(self, asked: Asked) -> Answer:
        answer = super().ask(asked)
        if self.whole is not None:
            if not answer.repeated and answer.refused != "command_mismatch":
                self.whole.judge(asked, answer)
                SEEN["commands"] += 1
            self.images[self.position] = pickle.dumps(self.whole)
        return answer

    def at(self, position: int) -> Twin:
        past = JudgedTwin(self.run_id, None)
        past.__dict__.update(super().at(position).__dict__)
        past.images = {at: image for at, image in self.images.items() if at <= position}
        past.whole = pickle.loads(self.images[position]) if position in self.images else None
        return past


class WholeRun(RestoreMachine):
    """The restore machine over the whole model, with the second reading."""

    model = MODEL
    elsewhere = False
    memory = False
    commands = st.runner().flatmap(lambda machine: vocabulary.commands(machine.second))
    facts = st.runner().flatmap(lambda machine: vocabulary.facts(machine.second, machine.now + 1))

    def __init__(self) -> None:
        super().__init__()
        self.twin: JudgedTwin = JudgedTwin(self.twin.run_id, Whole())
        self._second = Whole()

    @property
    def second(self) -> Whole:
        """What commands are drawn from: the second reading, or what it was when it could still follow."""
        if self.twin.whole is not None:
            self._second = self.twin.whole
        return self._second

    @initialize(family=vocabulary.families())
    @kept
    def be_a_family(self, family: list[Any]) -> None:
        """Something is going on already."""
        for command in family:
            self.ask_both(self.asked(command))
        for command in vocabulary.sent(self.second) if family else ():
            self.ask_both(self.asked(command))

    def go_on_as(self, live: Any, twin: Any, apart: Any) -> None:
        """Go on in a fork; seldom in one that the second reading cannot follow."""
        if twin.whole is not None or self.forks % 4 == 0:
            super().go_on_as(live, twin, apart)

    @invariant()
    @kept
    def is_what_the_contract_says(self) -> None:
        """The run, restored or not, shows in its own words what the second reading says."""
        SEEN["steps"] += 1
        if self.twin.whole is not None:
            self.twin.whole.check(self.live)

    @invariant()
    @kept
    def goes_on_as_its_twin(self) -> None:
        """Digest, whatever is derived, and the answers to the latest commands are those of the twin."""
        assert self.live.digest() == self.twin.state.digest()
        assert self.live.ask(indexes) == indexes(self.twin.state)
        probes = self.probes[-2:]
        mine = self.live.ask(lambda state: [would(MODEL, state, self.live.id, probe) for probe in probes])
        assert mine == self.twin.would(probes)

    def teardown(self) -> None:
        SEEN.update(crossings(self.twin))
        super().teardown()


def crossings(twin: Twin) -> Iterator[str]:
    """Yield every step from one projection into another in a run: ``task.finished -> node.completed``."""
    names: list[str] = []
    for commit in twin.commits:
        for wire in (wire for group in commit for wire in group[-1]):
            names.append(MODEL.catalog.by_tag[wire[0]].name)
            cause = names[-1 - wire[1]]
            if wire[1] and cause.startswith("task.") != names[-1].startswith("task."):
                yield f"{cause} -> {names[-1]}"
