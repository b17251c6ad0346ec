"""Contexts in a real store: checkpoints by reference, restores, and the mark that says what a checkpoint lacks."""

from __future__ import annotations

from pathlib import Path

from engine import open_store
from projections.contexts import AssistantMsg, ToolCall, ToolMsg, UserMsg


def test_a_conversation_restores_from_any_chain_of_checkpoints(tmp_path: Path) -> None:
    """Checkpointed every turn, folded now and then: reopening gives the same record, digest and next event (G2,
    G8)."""
    path = str(tmp_path / "a.db")
    with open_store(path) as store:
        run = store.run("r")
        run.contexts.create("c", model_window=200)
        run.contexts.import_record("old", {"messages": [{"role": "user", "text": "before", "ts": 1, "x": [1]}]})
        for turn in range(12):
            call = ToolCall(f"c{turn}", "look", {"n": turn})
            with run.batch():
                run.contexts.begin_turn("c")
                run.contexts.append_all("c", [UserMsg(f"q{turn}"), AssistantMsg(None, (call,))])
                run.contexts.append("c", ToolMsg(call.id, call.name, {"found": [turn]}))
            if run.contexts.needs_compaction("c") and (plan := run.contexts.plan_compaction("c", keep_last=5)):
                run.contexts.apply_compaction("c", plan, {"facts": [f"until {turn}"]})
            run.checkpoint()
        run.contexts.append("c", UserMsg("after the last checkpoint"))
        live = {context: run.contexts.get(context) for context in run.contexts.ids()}
        digest, position = run.digest(), run.position
        assert live["c"].version > 1
    for start in ("best", "genesis"):
        with open_store(path) as store:
            run = store.run("r") if start == "best" else store.run("r", start="genesis")
            assert (run.digest(), run.position) == (digest, position)
            assert {context: run.contexts.get(context) for context in run.contexts.ids()} == live
            assert run.at(position).contexts.get("c") == live["c"]
            assert len(run.at(5).contexts.messages("c")) == 3


def test_dirty_says_that_the_last_checkpoint_lacks_something(tmp_path: Path) -> None:
    """True when events of the conversation lie after the last checkpoint, also after a restore; never in the
    digest."""
    path = str(tmp_path / "a.db")
    with open_store(path) as store:
        run = store.run("r")
        run.contexts.create("c")
        run.contexts.create("d")
        assert run.contexts.get("c").dirty
        digest = run.digest()
        run.checkpoint()
        assert run.digest() == digest
        assert not run.contexts.get("c").dirty
        run.contexts.touch("c", at_ms=5)
        assert run.contexts.get("c").dirty and not run.contexts.get("d").dirty
    with open_store(path) as store:
        run = store.run("r")
        assert run.contexts.get("c").dirty and not run.contexts.get("d").dirty
