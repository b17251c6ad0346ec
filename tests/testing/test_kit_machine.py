"""The restore machine as a tool: options, subclasses, factories, and what it says and keeps when it fails."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule, run_state_machine_as_test

import engine.testing
from engine.core.model import Model
from engine.testing import ReplayDiffers, RestoreMachine, restore_machine
from engine.testing.failure import home_of
from projections.model import MODEL
from tests.testing import planted
from tests.testing.planted import FillBag, Sound, StartBag
from tests.toy import BANK, Open, Pay

FEW: dict[str, Any] = {"max_examples": 6}


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
def test_the_toy_passes_on_every_backend(backend: str, quiet: settings) -> None:
    """Tables of every kind, references into the journal and an old event version survive everything."""
    machine = restore_machine(BANK, backend=backend)
    run_state_machine_as_test(machine, settings=settings(quiet, **FEW))


@pytest.mark.parametrize("projection", MODEL.projections, ids=lambda projection: projection.name)
def test_each_of_our_projections_passes_alone(projection: Any, quiet: settings) -> None:
    """The four projections, each by itself, with whatever commands their types allow."""
    run_state_machine_as_test(restore_machine(projection), settings=settings(quiet, **FEW))


def test_every_rule_is_reached(quiet: settings) -> None:
    """In a handful of examples everything that can happen to a run happens."""
    machine = restore_machine(planted.SOUND, elsewhere=False)
    before = Counter(machine.tally)
    run_state_machine_as_test(machine, settings=settings(quiet, max_examples=15, stateful_step_count=25))
    done = machine.tally - before
    rules = {
        "begin", "give", "ingest", "ingest_decided", "batch", "repeat", "crash", "fail", "restart", "checkpoint",
        "crash_in_checkpoint", "fail_in_checkpoint", "damage_checkpoint", "age_checkpoint", "second_writer",
        "another_run", "old_event", "look_back", "fork", "is_the_twin", "check_at_the_end",
    }  # fmt: skip
    assert {name for name in rules if not done[name]} == set()


def test_a_factory_makes_the_projection_anew_for_every_process(quiet: settings) -> None:
    """State kept on the projection object dies with its process when a function makes the model: it is found."""
    with pytest.raises(ReplayDiffers, match="answer differently"):
        run_state_machine_as_test(restore_machine(lambda: Model((planted.HiddenInObject(),))), settings=quiet)


def test_a_subclass_adds_rules_and_invariants(quiet: settings) -> None:
    """A user's own rule is drawn among the others, and its failure leaves the journal too."""

    class Counting(RestoreMachine):
        model: ClassVar[Any] = planted.SOUND
        elsewhere: ClassVar[bool] = False
        fills = 0

        @rule(words=st.lists(st.sampled_from("ab"), min_size=1, max_size=2))
        def start_and_fill(self, words: list[str]) -> None:
            self.ask_both(self.asked(StartBag(bag="mine")))
            self.ask_both(self.asked(FillBag(bag="mine", words=words)))

        @invariant()
        def never_three(self) -> None:
            bag = self.live.ask(lambda state: state.parts["bags"].bags.get("mine"))
            assert bag is None or bag.fills < 3, "three fills"

    with pytest.raises(AssertionError, match="three fills"):
        run_state_machine_as_test(Counting, settings=quiet)


def test_commands_can_be_proposed_by_the_state(quiet: settings) -> None:
    """A proposal sees the twin's state; derived commands are then not needed."""
    asked: Counter[str] = Counter()

    def propose(random: Random, state: Any) -> Any:
        accounts = sorted(state.parts["bank"].accounts.rows)
        if not accounts or random.random() < 0.2:
            return Open(account=f"a{len(accounts)}")
        asked["pay"] += 1
        return Pay(account=random.choice(accounts), amount=1)

    run_state_machine_as_test(restore_machine(BANK, propose=propose), settings=settings(quiet, **FEW))
    assert asked["pay"] > 20


def test_commands_can_be_given_as_a_strategy(quiet: settings) -> None:
    """A strategy of one's own replaces the derived one."""
    machine = restore_machine(BANK, commands=st.builds(Open, account=st.sampled_from("xyz")), elsewhere=False)
    run_state_machine_as_test(machine, settings=settings(quiet, **FEW))


def test_a_machine_without_commands_or_with_unknown_options_is_refused() -> None:
    """What is missing is said when the machine is made, not when it runs."""

    class Nameless(Sound):
        name = "nobody knows"
        commands = ()

    with pytest.raises(LookupError, match="no command class"):
        restore_machine(Nameless())
    with pytest.raises(AssertionError, match="unknown options"):
        restore_machine(BANK, speed="high")


def test_a_failure_says_the_field_and_keeps_the_journal(failures: Path, quiet: settings) -> None:
    """The exception carries the path of the journal, and that journal alone shows the bug again."""
    with pytest.raises(ReplayDiffers, match=r"\.words\[") as caught:
        run_state_machine_as_test(restore_machine(planted.CHANGED_IN_LOAD), settings=quiet)
    journal = caught.value.journal
    assert journal == failures / "changed_in_load.jsonl"
    with pytest.raises(ReplayDiffers, match=r"\.words\["):
        engine.testing.assert_replay_identical(journal, planted.CHANGED_IN_LOAD)


def test_one_bug_seen_from_many_sides_is_one_failure(failures: Path, quiet: settings) -> None:
    """However a bug shows itself, by answers, states or manners, Hypothesis shrinks and tells one failure."""
    every = settings(quiet, report_multiple_bugs=True, phases=[Phase.generate, Phase.shrink], max_examples=60)
    with pytest.raises(ReplayDiffers) as caught:
        run_state_machine_as_test(restore_machine(planted.HIDDEN_IN_OBJECT), settings=every)
    assert len([note for note in caught.value.__notes__ if "refold import" in note]) == 1


def test_where_a_model_lives_is_found() -> None:
    """A model at the top of a module has an address; one made on the spot has none."""
    home = home_of(planted.SOUND)
    assert home is not None and home[0] == "tests.testing.planted" and home[2] == "SOUND"
    assert home_of(Model((Sound(),))) is None


def test_every_public_name_of_the_kit_is_there() -> None:
    """What engine.testing lists can be had from it, and nothing else is promised."""
    assert set(engine.testing.__all__) == set(engine.testing._MODULE_OF)
    for name in engine.testing.__all__:
        assert getattr(engine.testing, name) is not None
    with pytest.raises(AttributeError):
        _ = engine.testing.nothing_of_the_kind
