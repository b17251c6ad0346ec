"""P6, P7 and P11 for conversations and graphs: costs and bytes follow what changed there too."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from random import Random

from engine.bench.measure import Row, Setting, Spread, compare, timed
from engine.checkpoint import CheckpointPolicy
from engine.open_store import Store, open_store
from engine.runs import LiveRun
from engine.store import capture
from projections.graph import TaskNode

__all__ = ["p6_contexts", "p6_graphs", "p7_contexts", "p7_graphs", "p11_conversation", "p11_events"]

_NEVER = CheckpointPolicy(every_events=None)
_WORDS = [
    "the",
    "plan",
    "says",
    "to",
    "fetch",
    "every",
    "page",
    "first,",
    "then",
    "compare",
    "what",
    "they",
    "hold",
    "with",
    "the",
    "list",
    "of",
    "last",
    "week",
    "and",
    "report",
]


def _text(random: Random, words: int) -> str:
    """Return prose of so many words: neither noise nor one phrase again and again."""
    return " ".join(
        random.choice(_WORDS) + ("" if random.random() < 0.7 else str(random.randrange(1000))) for _ in range(words)
    )


def _conversation(store: Store, run_id: str, messages: int) -> LiveRun:
    run = store.run(run_id)
    run.contexts.create("chat", model_window=1_000_000)
    random = Random(7)
    for start in range(0, messages, 200):
        some = [
            {"role": "user" if number % 2 == 0 else "assistant", "text": _text(random, 20)}
            for number in range(start, min(start + 200, messages))
        ]
        run.contexts.append_all("chat", some)
    return run


def p6_contexts(setting: Setting) -> Row:
    """Appending a message to a conversation of 10,000, against one of 100."""
    large = setting.count(10_000, 400)
    store = open_store(setting.folder / "ours.db", checkpoints=_NEVER)
    big, little = _conversation(store, "big", large), _conversation(store, "little", 100)
    many = setting.count(300, 30)

    def append(run: LiveRun) -> float:
        def work() -> None:
            for number in range(many):
                run.contexts.append("chat", {"role": "user", "text": f"message {number} of a round"})

        return timed(work) / many

    left, right = compare(setting.rounds, lambda: append(big), lambda: append(little))
    store.close()
    return Row("P6c", p6_contexts.__doc__ or "", "<=", 1.1, left, right, setting.rounds)


def _graph(store: Store, run_id: str, nodes: int) -> LiveRun:
    """Return a run with one graph: chains of four nodes side by side, started."""
    run = store.run(run_id)
    depends = {number: [number - 1] for number in range(nodes) if number % 4}
    plan = [
        TaskNode.new(number, f"step {number}", "do it", depends_on=depends.get(number, [])) for number in range(nodes)
    ]
    run.graphs.create("plan", "goal", plan)
    run.graphs.start("plan")
    return run


def _work_off(run: LiveRun, many: int, numbers: count[int]) -> Callable[[], None]:
    def work() -> None:
        for _ in range(many):
            node = next(numbers)
            run.graphs.dispatch("plan", node, handle=f"h{node}")
            run.graphs.complete("plan", node, attempt=1, result="done")

    return work


def p6_graphs(setting: Setting) -> Row:
    """Completing a node (and readying the next) in a graph of 10,000, against one with as many steps as are
    measured."""
    many = setting.count(60, 8)
    steps = many * (setting.rounds + 1) + 4
    store = open_store(setting.folder / "ours.db", checkpoints=_NEVER)
    big, little = _graph(store, "big", setting.count(10_000, 2 * steps)), _graph(store, "little", steps)
    next_big, next_little = count(), count()
    left, right = compare(
        setting.rounds,
        lambda: timed(_work_off(big, many, next_big)) / many,
        lambda: timed(_work_off(little, many, next_little)) / many,
    )
    store.close()
    return Row("P6d", p6_graphs.__doc__ or "", "<=", 1.1, left, right, setting.rounds)


def _delta(setting: Setting, name: str, what: str, run: LiveRun, change: Callable[[], None]) -> Row:
    run.checkpoint(full=True)
    change()
    link = bytes(32)

    def delta() -> float:
        return run.ask(lambda state: timed(lambda: capture(state, run.id, link, (1, link))))

    def full() -> float:
        return run.ask(lambda state: timed(lambda: capture(state, run.id, link, None)))

    left, right = compare(setting.rounds, delta, full)
    return Row(name, what, "<=", 0.03, left, right, setting.rounds)


def p7_contexts(setting: Setting) -> Row:
    """A checkpoint after 100 new messages in a conversation of 10,000, against a full one (1 % of the records)."""
    large = setting.count(10_000, 1_000)
    store = open_store(setting.folder / "ours.db", checkpoints=_NEVER)
    run = _conversation(store, "big", large)

    def change() -> None:
        for number in range(large // 100):
            run.contexts.append("chat", {"role": "user", "text": f"message {number}"})

    row = _delta(setting, "P7c", p7_contexts.__doc__ or "", run, change)
    store.close()
    return row


def p7_graphs(setting: Setting) -> Row:
    """A checkpoint after work on 100 nodes of a graph of 10,000, against a full one."""
    large = setting.count(10_000, 1_000)
    store = open_store(setting.folder / "ours.db", checkpoints=_NEVER)
    run = _graph(store, "big", large)
    row = _delta(setting, "P7d", p7_graphs.__doc__ or "", run, _work_off(run, max(1, large // 200), count()))
    store.close()
    return row


def _file_bytes(path: Path) -> int:
    return sum(part.stat().st_size for part in path.parent.glob(path.name + "*"))


def p11_conversation(setting: Setting) -> Row:
    """Bytes on disk of a conversation of 200 turns checkpointed every turn, against its raw JSON bytes (about 1 kB a
    turn)."""
    turns = setting.count(200, 20)
    path = setting.folder / "ours.db"
    random = Random(11)
    raw = 0
    with open_store(path, checkpoints=_NEVER) as store:
        run = store.run("talk")
        run.contexts.create("chat", model_window=128_000)
        for number in range(turns):
            turn = [{"role": "user", "text": _text(random, 30)}, {"role": "assistant", "text": _text(random, 130)}]
            raw += sum(len(json.dumps(message | {"ts": number})) for message in turn)
            run.contexts.append_all("chat", turn)
            run.checkpoint()
    size = _file_bytes(path)
    left, right = (Spread(value, value, value, "bytes") for value in (float(size), float(raw)))
    return Row("P11b", p11_conversation.__doc__ or "", "<=", 1.3, left, right, 1)


def p11_events(setting: Setting) -> Row:
    """Bytes on disk an event, in commits of a hundred, against eventsourcing's default with one aggregate event a
    row."""
    from engine.bench.replay import aggregates_of, filled
    from engine.bench.workload import forest

    tasks = setting.count(1_000, 40)
    events = sum(1 for _ in forest(tasks))
    filled(setting, tasks).close()
    ours = _file_bytes(setting.folder / "ours.db") / events
    application = aggregates_of(setting.folder / "aggregates.db", tasks)
    application.close()
    theirs = _file_bytes(setting.folder / "aggregates.db") / events
    left, right = Spread(ours, ours, ours, "bytes"), Spread(theirs, theirs, theirs, "bytes")
    return Row("P11", p11_events.__doc__ or "", "<=", 0.4, left, right, 1)
