"""A second reading of a whole run: tasks, conversations, graphs and a swarm beside one another, and what follows in one
of them from a step in another. It is put together from the second readings of the four, and shares with the code under
test the words of its commands and nothing else: no events, no folds, no indexes.

``judge`` takes a command with the answer that the run gave to it; ``check`` compares the run's own words with this.
"""

from __future__ import annotations

import copy
import pickle
from typing import Any

from engine.core.codec import encode
from engine.testing.twin import Answer, Asked
from projections.contexts import load_message
from tests.projections.contexts.contexts_naive import NaiveContexts, fold_point, naive_cost
from tests.projections.graph.graph_bench import check_rest
from tests.projections.graph.graph_oracle import No, Node
from tests.projections.graph.graph_oracle_followed import Followed, node_of
from tests.projections.swarm.swarm_naive import NaiveSwarm
from tests.projections.tasks.tasks_naive import CHANGED, REFUSED, SAME, Naive

KEEP = 2
"""How many messages a compaction keeps here, so that there is something to fold."""


class Whole:
    """Everything that a run is."""

    def __init__(self) -> None:
        self.tasks = Naive()
        self.contexts = NaiveContexts()
        self.graphs: dict[str, Followed] = {}
        self.born: dict[str, tuple[bytes, Any]] = {}
        """Graph -> what it was made of, and the oracle as it was then."""
        self.swarm = NaiveSwarm()

    # -- commands -------------------------------------------------------------------------------------------------

    def judge(self, asked: Asked, answer: Answer) -> None:
        """Do what was asked here too; assert that the run's answer was the right one."""
        before = pickle.dumps(self.__dict__)
        told = self._facts(asked) if asked.facts else self._command(asked.what, asked.at_ms)
        if told == REFUSED:
            self.__dict__.update(pickle.loads(before))
        said = REFUSED if answer.refused else SAME
        if any(event.type != "run.command_noted/1" for event in answer.events):
            said = CHANGED
        assert said == told, f"{asked}: the run says {answer}, the contract says {told}"

    def _command(self, command: Any, now: int) -> str:
        part = getattr(self, f"_{command.projection}_command")
        told: str = part(command, now)
        return told

    def _facts(self, asked: Asked) -> str:
        """Facts are taken all or none."""
        answers = [getattr(self, "_fact_" + name.replace(".", "_"))(asked.at_ms, **data) for name, data in asked.what]
        return REFUSED if REFUSED in answers else CHANGED if CHANGED in answers else SAME

    # -- tasks ----------------------------------------------------------------------------------------------------

    def _tasks_command(self, command: Any, now: int) -> str:
        unsaid = ("approved", "isolation", "context_inheritance", "payload")
        arguments = {key: value for key, value in command.model_dump().items() if key not in unsaid}
        return self._task_step(now, command.name, **arguments)

    def _task_step(self, now: int, name: str, **arguments: Any) -> str:
        before = {task: dict(row) for task, row in self.tasks.rows.items()}
        told: str = getattr(self.tasks, name)(**arguments)
        if told == CHANGED:
            self._follow(before, now)
        return told

    def _follow(self, before: dict[str, dict[str, Any]], now: int) -> None:
        """What the steps of tasks bring about: attempts begin and end, plan items settle."""

        def depth(task: str) -> int:
            parent = before[task]["parent_task_id"]
            return 0 if parent is None else 1 + depth(parent)

        was = {task: row["lifecycle"] for task, row in before.items()}
        moved = [task for task in was if self.tasks.rows[task]["lifecycle"] != was[task]]
        order = {task: place for place, task in enumerate(was)}
        for task in sorted(moved, key=lambda task: (-depth(task), order[task])):
            row = self.tasks.rows[task]
            carried = self.carried(task)
            if row["lifecycle"] == "done":
                for context in self.contexts.records:
                    self._settle(context, task, now)
                if carried is not None:
                    carried[0].task_ended(carried[1], task, row, now)
            elif row["lifecycle"] == "running" and was[task] in ("starting", "ready") and carried is not None:
                carried[0].task_began(carried[1], now)

    def carried(self, task: str) -> tuple[Followed, int] | None:
        """The graph and the node whose live attempt follows a task."""
        found = [(graph, node) for graph in self.graphs.values() for node in graph.following(task)]
        assert len(found) <= 1
        return found[0] if found else None

    def may_follow(self, task: str) -> bool:
        known = self.tasks.alive(task) or not self.tasks.rows
        return known and self.carried(task) is None

    def _fact_task_finished(self, now: int, task_id: str, termination: str, attempt: int | None, **_: Any) -> str:
        arguments = {"termination": termination, "attempt": attempt, "result": None, "on_children": None}
        return self._task_step(now, "finish", task_id=task_id, **arguments)

    def _fact_task_launch_acknowledged(self, now: int, task_id: str, attempt: int | None) -> str:
        return self._task_step(now, "acknowledge_launch", task_id=task_id, attempt=attempt)

    # -- contexts -------------------------------------------------------------------------------------------------

    def _contexts_command(self, c: Any, now: int) -> str:
        naive, to = self.contexts, c.context
        if c.name == "create":
            return naive.create(to, now, c.kind, c.model_window, c.principal)
        if c.name == "append":
            return naive.append(to, now, [message_of(array) for array in c.messages])
        if c.name == "load_skill":
            return naive.load_skill(to, now, c.skill, c.hash, c.max_loaded)
        if c.name == "unload_skill":
            return naive.unload_skill(to, now, c.skill)
        if c.name == "create_plan":
            return naive.create_plan(to, now, c.goal, c.items, c.max_items)
        if c.name == "update_plan":
            return self._bound_anew(to, now, naive.update_plan(to, now, c.changes, c.max_items))
        if c.name == "settle_plan":
            kind, ref = c.binding
            return naive.settle_plan(to, now, {kind: {"handle" if kind == "subagent" else "id": ref}}, c.ok, c.note)
        if c.name in ("attach_task", "detach_task"):
            return naive.set_task(to, now, getattr(c, "task", None), list(self.tasks.rows))
        if c.name == "apply_compaction":
            return naive.compact(to, now, c.fold, c.version, c.verdict)
        if c.name == "apply_fallback":
            return naive.fall_back(to, now, c.fold, c.version)
        if c.name == "import":
            return self._import_context(to, now, c)
        values = [getattr(c, key) for key in ("model_window", "value", "principal", "reason") if hasattr(c, key)]
        told: str = getattr(naive, c.name)(to, now, *values)
        return told

    def _import_context(self, context: str, now: int, command: Any) -> str:
        from tests.projections.model_vocabulary import record_of

        record = record_of(command.parts)
        if self.tasks.rows and record.get("task") is not None and record["task"] not in self.tasks.rows:
            return REFUSED
        return self._bound_anew(context, now, self.contexts.take(context, record, now, command.model_window))

    def _bound_anew(self, context: str, now: int, told: str) -> str:
        """Items that are bound to a task which is done settle at once."""
        if told == CHANGED:
            for task, row in self.tasks.rows.items():
                if row["lifecycle"] == "done":
                    self._settle(context, task, now)
        return told

    def _settle(self, context: str, task: str, now: int) -> None:
        ok = self.tasks.rows[task]["termination"] == "completed"
        self.contexts.settle_plan(context, now, {"task": {"id": task}}, ok)

    def _fact_context_task_attached(self, now: int, context: str, at_ms: int, task: str) -> str:
        told = context in self.contexts.records and self.contexts.records[context].get("task") == task
        if told and (task in self.tasks.rows or not self.tasks.rows):
            return self.contexts._set(context, at_ms)  # a fact that tells the task again is a fact
        return REFUSED if told else self.contexts.set_task(context, at_ms, task, list(self.tasks.rows))

    def _fact_context_plan_items_settled(
        self, now: int, context: str, at_ms: int, items: list[int], ok: bool, note: str | None
    ) -> str:
        record = self.contexts.records.get(context)
        if record is None or "plan" not in record or not items:
            return REFUSED
        plan = record["plan"]
        named = [item for item in plan["items"] if item["id"] in items]
        if len(named) != len(items):
            return REFUSED
        status = "done" if ok else "blocked"
        if all(
            item["status"] == status and note in (None, item.get("note")) and "task" in item.get("bound", {})
            for item in named
        ):
            return SAME
        if any(item["status"] not in ("pending", "in_progress") for item in named):
            return REFUSED
        for item in named:
            item |= {"status": status, "updated": at_ms} | ({} if note is None else {"note": note})
        plan["updated"] = at_ms
        return self.contexts._set(context, at_ms)

    # -- graphs ---------------------------------------------------------------------------------------------------

    def _graph_command(self, c: Any, now: int) -> str:
        if c.name == "create":
            head = [c.goal, c.default_failure_strategy, c.default_max_retries, c.max_tasks, c.predicate_reruns]
            return self._make(c.graph, now, [head, c.nodes], lambda: self._fresh(c))
        if c.name == "import_graph":
            return self._make(c.graph, now, c.record, lambda: self._imported(c.record, c.predicate_reruns))
        graph = self.graphs.get(c.graph)
        if graph is None:
            return REFUSED
        try:
            return graph.command(c, now, self.may_follow)
        except No:
            return REFUSED

    def _make(self, graph: str, now: int, content: Any, make: Any) -> str:
        told = encode(content)
        if graph in self.graphs:
            known, then = self.born[graph]
            there = self.graphs[graph]
            created = isinstance(content, list)
            kept = len(there.nodes) == len(then.nodes) if created else there.__dict__ == then.__dict__
            return SAME if known == told and kept else REFUSED
        try:
            made = make()
        except No:
            return REFUSED
        self.graphs[graph] = made
        self.born[graph] = (told, copy.deepcopy(made))
        return CHANGED

    def _fresh(self, c: Any) -> Followed:
        nodes = [node_of(record, number) for number, record in enumerate(c.nodes)]
        check_dependencies(nodes)
        return Followed(nodes, c.default_failure_strategy, c.default_max_retries, c.predicate_reruns)

    def _imported(self, record: Any, reruns: int) -> Followed:
        nodes = [node_of(node, number) for number, node in enumerate(record["nodes"])]
        made = Followed(nodes, record["default_failure_strategy"], record["default_max_retries"], reruns)
        made.take_lives(record)
        for number in made.where("running"):
            task = made.task_of(number)
            if task is not None and not self.may_follow(task):
                raise No
        return made

    def _fact_node_dispatched(self, now: int, graph: str, node: int, **fields: Any) -> str:
        there = self.graphs.get(graph)
        if there is None or node >= len(there.nodes) or fields["attempt"] != len(there.nodes[node].attempts) + 1:
            return REFUSED
        task = fields["task"]
        try:
            there.dispatched(node, {"task": task} if task else fields["handle"], fields["at_ms"], self.may_follow)
            there.note(now)
            return CHANGED
        except No:
            return REFUSED

    # -- the swarm ------------------------------------------------------------------------------------------------

    def _swarm_command(self, c: Any, now: int) -> str:
        swarm = self.swarm
        if c.name == "import_record":
            return swarm.take(c.record, c.visits, c.successes, c.max_ticks, c.failure_threshold)
        names = {
            "start": ("start", "worker_count", "max_ticks", "failure_threshold", "task"),
            "configure_actions": ("configure_actions", "config"),
            "advance_tick": ("advance", "tick"),
            "complete_action": ("act", "worker", "action", "success", "output", "kind"),
            "idle": ("idle", "worker"),
            "raise_escalation": ("escalate", "worker", "reason"),
            "clear_escalation": ("clear", "worker"),
            "finish_worker": ("finish", "worker", "success", "message"),
            "issue_guidance": ("guide", "worker", "guidance"),
            "update_exploration": ("explore", "excluded_actions", "v2_guidances"),
            "set_metadata": ("put", "key", "value"),
            "remove_metadata": ("drop", "key"),
            "record_verdict": ("judge", "success", "reason", "details"),
        }
        method, *fields = names[c.name]
        told: str = getattr(swarm, method)(*(getattr(c, field) for field in fields))
        return told

    def _fact_swarm_tick_advanced(self, now: int, tick: int) -> str:
        return self.swarm.advance(tick)

    # -- questions ------------------------------------------------------------------------------------------------

    def check(self, run: Any) -> None:
        """Ask a run (or a view of one) about everything; it must say what this says."""
        assert run.tasks.rows().to_json() == self.tasks.public()
        assert [run.tasks.launch(task).attempt for task in self.tasks.rows] == [
            row["attempt"] for row in self.tasks.rows.values()
        ]
        assert run.contexts.ids() == list(self.contexts.records)
        for context in self.contexts.records:
            self._check_context(run, context)
        assert run.graphs.ids() == tuple(self.graphs)
        for graph, oracle in self.graphs.items():
            oracle.check(run.graphs, graph)
            if oracle.status != "created":
                check_rest(run.graphs.get(graph))
        assert run.swarm.started() == (self.swarm.told is not None)
        if self.swarm.told is not None:
            self.swarm.check(run.swarm.context())

    def _check_context(self, run: Any, context: str) -> None:
        record = self.contexts.to_json(context)
        state = run.contexts.get(context)
        assert encode_json(state.to_json()) == encode_json(record)
        assert state.est_tokens == state.recount() == naive_cost(record)
        plan = run.contexts.plan_compaction(context, KEEP)
        assert (plan and plan.fold) == fold_point(record["messages"], KEEP)


def message_of(array: Any) -> dict[str, Any]:
    """The JSON of a message in a command; without a time, if it has none."""
    shape: dict[str, Any] = load_message(array).to_json()
    return shape


def check_dependencies(nodes: list[Node], first: int = 0) -> None:
    """Raise No when a node depends on itself or on none."""
    for number, node in enumerate(nodes, first):
        if any(other == number or other >= first + len(nodes) for other in node.deps):
            raise No


def encode_json(value: Any) -> bytes:
    """Bytes in which 1, 1.0 and true are three values, and the order of keys is none."""
    if isinstance(value, dict):
        value = [[key, encode_json(value[key])] for key in sorted(value)]
    elif isinstance(value, list):
        value = [encode_json(item) for item in value]
    return encode(value)
