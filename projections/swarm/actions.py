"""Actions: what the workers of a swarm may do, and named choices among it. Nothing here runs an action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from engine.core.errors import NotFound
from engine.core.fields import JSON, TEXT, one_of
from projections.swarm.shape import Faults, copied, leaf, listed, mapped, maybe, shaped
from projections.swarm.value import Kind, RecordValue

__all__ = ["ACTIONS_CONFIG", "ACTION_CATEGORIES", "ActionDef", "ActionGroup", "ActionsConfig"]


ACTION_CATEGORIES: Final = ("node_expand", "node_state_change")
ACTION_DEF: Final = shaped(
    {
        "name": leaf(TEXT),
        "description": leaf(TEXT),
        "category": leaf(one_of("action category", ACTION_CATEGORIES)),
    },
    {"groups": listed(leaf(TEXT)), "params": listed(leaf(JSON)), "example": maybe(leaf(TEXT))},
)
ACTION_GROUP: Final = shaped({}, {"include_groups": listed(leaf(TEXT)), "exclude_groups": listed(leaf(TEXT))})
_CONFIG: Final = shaped({}, {"actions": mapped(ACTION_DEF), "groups": mapped(ACTION_GROUP)})


def ACTIONS_CONFIG(value: Any, path: str, faults: Faults) -> Any:
    """The shape of an actions config: every action stands under its own name."""
    config = _CONFIG(value, path, faults)
    for key, action in config.get("actions", {}).items():
        if action.get("name") is not None and action["name"] != key:
            where = f"{path}.actions.{key}.name" if path else f"actions.{key}.name"
            faults.add(where, action["name"], "swarm.own_name", f"expected {key!r}")
    return config


class ActionDef(RecordValue):
    """One action that workers may take."""

    __slots__ = ()
    KIND = Kind("action", ACTION_DEF, {"groups": [], "params": [], "example": None})

    def __init__(
        self,
        name: str,
        description: str = "",
        category: str = "node_expand",
        groups: Iterable[str] = (),
        params: Iterable[Any] = (),
        example: str | None = None,
    ) -> None:
        self._build(
            {
                "name": name,
                "description": description,
                "category": category,
                "groups": list(groups),
                "params": list(params),
                "example": example,
            }
        )

    @property
    def name(self) -> str:
        """The action's name."""
        name: str = self._record["name"]
        return name

    @property
    def description(self) -> str:
        """What it does, for a prompt."""
        text: str = self._record["description"]
        return text

    @property
    def category(self) -> str:
        """Its effect on the search space: one of ACTION_CATEGORIES."""
        category: str = self._record["category"]
        return category

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups it is in, in order."""
        return tuple(self._get("groups"))

    @property
    def params(self) -> tuple[Any, ...]:
        """Its parameters, JSON values in order."""
        return tuple(copied(self._get("params")))

    @property
    def example(self) -> str | None:
        """An example of its output, or None."""
        found: str | None = self._get("example")
        return found


class ActionGroup(RecordValue):
    """A choice of actions by their groups. An empty include takes all; exclude wins over include."""

    __slots__ = ()
    KIND = Kind("action group", ACTION_GROUP, {"include_groups": [], "exclude_groups": []})

    def __init__(self, include_groups: Iterable[str] = (), exclude_groups: Iterable[str] = ()) -> None:
        self._build({"include_groups": list(include_groups), "exclude_groups": list(exclude_groups)})

    @property
    def include_groups(self) -> tuple[str, ...]:
        """Groups to take from; empty means all actions."""
        return tuple(self._get("include_groups"))

    @property
    def exclude_groups(self) -> tuple[str, ...]:
        """Groups to leave out, whatever include says."""
        return tuple(self._get("exclude_groups"))

    def admits(self, action: ActionDef) -> bool:
        """Return whether the action belongs to this choice."""
        groups = set(action.groups)
        if groups & set(self.exclude_groups):
            return False
        return not self.include_groups or bool(groups & set(self.include_groups))


class ActionsConfig(RecordValue):
    """The actions of a swarm by name, and named choices among them."""

    __slots__ = ()
    KIND = Kind("actions config", ACTIONS_CONFIG, {"actions": {}, "groups": {}})

    def __init__(self, actions: Iterable[ActionDef] = (), groups: Mapping[str, ActionGroup] | None = None) -> None:
        self._build(
            {
                "actions": {action.name: action.to_record() for action in actions},
                "groups": {name: group.to_record() for name, group in (groups or {}).items()},
            }
        )

    @property
    def actions(self) -> dict[str, ActionDef]:
        """Every action by name, in a fresh dict ordered by name."""
        found = self._get("actions")
        return {name: ActionDef.trusted(found[name]) for name in sorted(found)}

    @property
    def groups(self) -> dict[str, ActionGroup]:
        """Every group by name, in a fresh dict ordered by name."""
        found = self._get("groups")
        return {name: ActionGroup.trusted(found[name]) for name in sorted(found)}

    def actions_in(self, group: str) -> tuple[ActionDef, ...]:
        """Return the actions that a group chooses, ordered by name. Raises NotFound for an unknown group."""
        chosen = self.groups.get(group)
        if chosen is None:
            raise NotFound(f"no action group {group!r}", hint=f"groups: {', '.join(self.groups) or 'none'}")
        return tuple(action for action in self.actions.values() if chosen.admits(action))
