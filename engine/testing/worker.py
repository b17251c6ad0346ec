"""The other process: replays runs for :mod:`engine.testing.elsewhere`, each in a forked child of its own. It must never
answer from memory: a child knows its one question only.
"""

from __future__ import annotations

import datetime
import importlib
import importlib.util
import os
import pickle
import random
import sys
import time
import traceback
from typing import Any, Final

from engine.checkpoint import take_checkpoint
from engine.core.codec import decode
from engine.core.envelope import genesis, seal_commit
from engine.core.model import Model
from engine.open_store import Store
from engine.restore import restore
from engine.store import connect
from engine.testing.elsewhere import Question, Report, Route
from engine.testing.failure import Home
from engine.testing.memory import Memory
from engine.testing.twin import would

_SEED: Final = 20_011


def main() -> None:
    """Answer questions from standard input until it ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a projection prints must not come between
    path, shift = pickle.load(sys.stdin.buffer)
    sys.path[:] = path
    shift_clocks(shift)
    models: dict[Home, Any] = {}
    while True:
        try:
            question = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        if question.home not in models:
            models[question.home] = load(question.home)
        found = models[question.home]
        answers.write(_in_a_child(question, found))
        answers.flush()


def _in_a_child(question: Question, found: Any) -> bytes:
    """Return the pickled report that a forked child gives."""
    if not hasattr(os, "fork"):  # no fresh process to be had for every question: this one has to do
        return _answered(question, found)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            with os.fdopen(writing, "wb") as pipe:
                pipe.write(_answered(question, found))
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        report = pipe.read()
    os.waitpid(child, 0)
    return report or pickle.dumps(Report(error="the other process died"))


def _answered(question: Question, found: Any) -> bytes:
    random.seed(_SEED)
    try:
        if isinstance(found, Exception):
            raise found
        return pickle.dumps(replay(question, *found))
    except BaseException:
        return pickle.dumps(Report(error=traceback.format_exc(limit=-4)))


def replay(question: Question, model: Model, memory: Memory) -> Report:
    """Restore a run by every route and ask in each state what is to be asked."""
    store = Store(connect("memory:"), model)
    link, seq, ends = genesis(question.run_id), 1, [0]
    for groups in decode(question.commits):
        count = sum(len(group[-1]) for group in groups)
        stored, link = seal_commit(link, groups)
        store.journal.append(question.run_id, seq, count, stored, link)
        seq += count
        ends.append(seq - 1)
    asked = pickle.loads(question.asked)

    def route(name: str) -> Route:
        with memory.process().running():
            state = restore(store.journal, store.checkpoints, model, question.run_id).state
            answers = tuple(would(model, state, question.run_id, each) for each in asked)
            return Route(name, state.bytes(), answers)

    routes = [route("folded from the first event")]
    for position in (ends[len(ends) // 2], ends[-1]):
        at = restore(store.journal, store.checkpoints, model, question.run_id, until=position, start="genesis")
        take_checkpoint(store.checkpoints, question.run_id, at, full=True)
        routes.append(route(f"restored from its checkpoint at {position}"))
    return Report(tuple(routes))


def load(home: Home) -> Any:
    """Return the model of a home and its memory; an exception, to be raised later, when they cannot be had."""
    name, file, attribute = home
    try:
        found = getattr(_module(name, file), attribute)
        model = found if isinstance(found, Model) else Model((found,))
        return model, Memory(model)
    except Exception as error:
        return error


def _module(name: str, file: str) -> Any:
    try:
        module = importlib.import_module(name)
        if getattr(module, "__file__", None) == file:
            return module
    except ImportError:
        pass
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None, f"{file} is no Python module"
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def shift_clocks(seconds: float) -> None:
    """Let every clock that Python reads be wrong by so much, from now on, for whoever imports it from now on."""
    ns = int(seconds * 1e9)
    for name in ("time", "monotonic", "perf_counter"):
        _shift(name, seconds)
        _shift(f"{name}_ns", ns)
    real = datetime.datetime
    delta = datetime.timedelta(seconds=seconds)

    class Meta(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, real)

    class Shifted(real, metaclass=Meta):  # type: ignore[valid-type, misc]
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return real.now(tz) + delta

        @classmethod
        def utcnow(cls) -> Any:
            return real.now(datetime.UTC).replace(tzinfo=None) + delta

    datetime.datetime = Shifted  # type: ignore[misc]


def _shift(name: str, by: Any) -> None:
    clock = getattr(time, name)
    setattr(time, name, lambda: clock() + by)


if __name__ == "__main__":
    main()
