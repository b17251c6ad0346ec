"""What the tests of the read model share: the document that its rows say, worked out without the code that wrote them,
and dumps to compare two read models by."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.open_store import Store
from engine.readmodel import ReadModel

__all__ = ["at_rest", "document_in", "dump", "readmodel"]


def readmodel(store: Store, path: Path | None, chunk_events: int = 5_000) -> ReadModel:
    """Open a read model of a store without bringing it up to date."""
    return ReadModel(store.journal, store.checkpoints, store.model, path, chunk_events=chunk_events)


def _number(stored: Any) -> Any:
    return int(stored[:-1]) if isinstance(stored, str) else stored


def _load(stored: str | None) -> Any:
    return None if stored is None else json.loads(stored)


def _kept(**parts: Any) -> dict[str, Any]:
    return {key: value for key, value in parts.items() if value is not None}


def _without(record: dict[str, Any], extra: str | None, absent: str | None) -> dict[str, Any]:
    for key in _load(absent) or ():
        del record[key]
    return {**record, **(_load(extra) or {})}


def document_in(connection: sqlite3.Connection, run: str) -> dict[str, dict[str, Any]]:
    """Return what the rows of a run say, in the form of ``engine.documents.document``."""
    connection.row_factory = sqlite3.Row

    def rows(sql: str, *more: Any) -> Iterable[Mapping[str, Any]]:
        return connection.execute(sql, (run, *more)).fetchall()  # type: ignore[no-any-return]

    tasks = {row["task_id"]: _task(row) for row in rows("SELECT * FROM tasks WHERE run = ? ORDER BY number")}
    contexts = {}
    for row in rows("SELECT * FROM contexts WHERE run = ? ORDER BY number"):
        said = rows(
            "SELECT * FROM messages WHERE run = ? AND context = ? AND folded_seq IS NULL ORDER BY place", row["context"]
        )
        contexts[row["context"]] = _context(row, [_message(message) for message in said])
        assert row["message_count"] == len(contexts[row["context"]]["messages"])
    graphs = {}
    for row in rows("SELECT * FROM graphs WHERE run = ?"):
        nodes = []
        for node in rows("SELECT * FROM nodes WHERE run = ? AND graph = ? ORDER BY node", row["graph"]):
            attempts = rows(
                "SELECT * FROM attempts WHERE run = ? AND graph = ? AND node = ? ORDER BY number",
                row["graph"],
                node["node"],
            )
            nodes.append(_node(node, [_attempt(attempt) for attempt in attempts]))
        graphs[row["graph"]] = _graph(row, nodes)
    swarms = list(rows("SELECT * FROM swarms WHERE run = ?"))
    return {
        "tasks": tasks,
        "contexts": contexts,
        "graphs": graphs,
        "swarm": {} if not swarms else {"swarm": _swarm(swarms[0], rows), **_beside(swarms[0], rows)},
    }


def _task(row: Mapping[str, Any]) -> dict[str, Any]:
    process, result = None, _load(row["result"])
    if row["parent_task_id"] is not None:
        join = None if result is None else {"result": result, "agent_id": row["task_id"]}
        process = {key: row[key] for key in ("role", "isolation", "context_inheritance")} | {"join_result": join}
    return {
        **{key: row[key] for key in ("task_id", "parent_task_id", "lifecycle", "termination", "wait")},
        "waiting_on": _load(row["waiting_on"]),
        "capability_ids": _load(row["capability_ids"]),
        "process": process,
        "tokens_used": str(_number(row["tokens_used"])),
        "turns_used": row["turns_used"],
    }


def _context(row: Mapping[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": row["kind"],
        "summary": _load(row["summary"]),
        "messages": messages,
        **{key: _number(row[key]) for key in ("version", "est_tokens", "model_window", "turns")},
        "created": _number(row["created_ms"]),
        "updated": _number(row["updated_ms"]),
        **_kept(principal=row["principal"], task=row["task_id"], plan=_load(row["plan"])),
        **_kept(preflight=_load(row["preflight"]), skills=_load(row["skills"]) or None),
        **(_load(row["extra"]) or {}),
    }


def _message(row: Mapping[str, Any]) -> dict[str, Any]:
    shape = {"role": row["role"], "ts": _number(row["ts_ms"]), **(_load(row["extra"]) or {})}
    if row["role"] == "tool":
        content = {"content": _load(row["content"]), "is_error": bool(row["is_error"])}
        return {**shape, "id": row["call_id"], "name": row["tool_name"], **content}
    return {
        **shape,
        **_kept(text=row["text"], principal=row["principal"], tool_calls=_load(row["tool_calls"])),
    }


def _graph(row: Mapping[str, Any], nodes: list[dict[str, Any]]) -> dict[str, Any]:
    keys = ("goal", "status", "default_failure_strategy", "default_max_retries")
    return {
        "id": row["graph"],
        "nodes": nodes,
        **{key: row[key] for key in keys},
        "created_at": row["created_ms"],
        "finished_at": row["finished_ms"],
        **_kept(outcome=row["outcome"]),
        **(_load(row["extra"]) or {}),
    }


def _node(row: Mapping[str, Any], attempts: list[dict[str, Any]]) -> dict[str, Any]:
    plain = (
        "title", "description", "agent_hint", "status", "assigned_agent", "retry_count", "predicate_rerun_count",
        "failure_strategy", "max_retries", "execution_mode", "execution_environment", "token_budget_cents",
        "network_scope", "asset_sensitivity",
    )  # fmt: skip
    parts = ("depends_on", "result", "verify_predicate", "predicate_outcome")
    return {
        "id": row["node"],
        **{key: row[key] for key in plain},
        **{key: _load(row[key]) for key in parts},
        **_kept(timeout=_load(row["timeout"]), recovery=_load(row["recovery"])),
        **_kept(routed_from=row["routed_from"], cause=row["cause"]),
        **_kept(attempts=attempts or None, tainted_by=_load(row["tainted_by"]) or None),
        **(_load(row["extra"]) or {}),
    }


def _attempt(row: Mapping[str, Any]) -> dict[str, Any]:
    keys = ("number", "agent", "started_ms", "ended_ms", "outcome", "error")
    handle = row["handle"] if row["task_id"] is None else {"task": row["task_id"]}
    return {"handle": handle, **{key: row[key] for key in keys}, **(_load(row["extra"]) or {})}


def _beside(row: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    """Return what is known of a swarm and has no place in its record."""
    found: dict[str, Any] = {}
    if row["verdict_success"] is not None:
        verdict = {"success": bool(row["verdict_success"]), "reason": row["verdict_reason"]}
        found["verdict"] = {**verdict, "details": _load(row["verdict_details"])}
    still = "SELECT * FROM escalations WHERE run = ? AND cleared_seq IS NULL AND attempts > 0 ORDER BY number"
    if again := {str(_number(each["worker"])): each["attempts"] for each in rows(still)}:
        found["raised_again"] = again
    return found


def _swarm(row: Mapping[str, Any], rows: Any) -> dict[str, Any]:
    workers, guidances, done = {}, {}, []
    for worker in rows("SELECT * FROM workers WHERE run = ?"):
        number = _number(worker["worker"])
        summary = {
            "id": number,
            "phase": worker["phase"],
            "has_escalation": bool(worker["has_escalation"]),
            "last_success": None if worker["last_success"] is None else bool(worker["last_success"]),
            **{key: worker[key] for key in ("consecutive_failures", "last_action", "last_output")},
            "history_len": _number(worker["history_len"]),
        }
        workers[str(number)] = _without(summary, worker["extra"], worker["absent"])
        if worker["guidance"] is not None:
            guidances[str(number)] = _load(worker["guidance"])
        if worker["done"]:
            done.append(number)
    escalations = []
    for row_ in rows("SELECT * FROM escalations WHERE run = ? AND cleared_seq IS NULL ORDER BY number"):
        detail = _load(row_["detail"])
        record = {
            "reason": row_["reason"] if detail is None else {row_["reason"]: detail},
            "raised_at_tick": _number(row_["raised_at_tick"]),
            "context": row_["context"],
        }
        escalations.append([_number(row_["worker"]), _without(record, row_["extra"], row_["absent"])])
    metadata = {kept["key"]: _load(kept["value"]) for kept in rows("SELECT * FROM metadata WHERE run = ?")}
    record = {
        "tick": _number(row["tick"]),
        "workers": workers,
        "success_rate": row["success_rate"],
        "progress": row["progress"],
        "escalations": escalations,
        "available_actions": _load(row["available_actions"]),
        "v2_guidances": _load(row["v2_guidances"]),
        "excluded_actions": _load(row["excluded_actions"]),
        "previous_guidances": guidances,
        "done_workers": sorted(done),
        "metadata": metadata,
    }
    return _without(record, row["extra"], row["absent"])


def dump(connection: sqlite3.Connection) -> bytes:
    """Return the schema and every row of every table, in order of the primary keys; messages without their row number,
    which is another one after every rebuild."""
    connection.row_factory = None
    said = []
    schema = connection.execute("SELECT name, type, sql FROM sqlite_master WHERE name NOT LIKE '%_fts_%' ORDER BY name")
    tables = []
    for name, kind, sql in schema.fetchall():
        said.append([name, sql])
        if kind == "table" and not name.startswith(("sqlite_", "messages_fts")):
            tables.append(name)
    for name in tables:
        found = [(column[1], column[5]) for column in connection.execute(f'PRAGMA table_info("{name}")')]
        kept = [column for column, _ in found if (name, column) != ("messages", "id")]
        order = ["run", "context", "place"] if name == "messages" else [column for column, key in found if key]
        listed, ordered = (", ".join(f'"{column}"' for column in columns) for columns in (kept, order))
        said.append([name, connection.execute(f'SELECT {listed} FROM "{name}" ORDER BY {ordered}').fetchall()])
    return repr(said).encode("unicode_escape")


def at_rest(path: Path) -> bytes:
    """Return the dump of a read model's file, read as any SQLite tool would."""
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("INSERT INTO messages_fts(messages_fts, rank) VALUES ('integrity-check', 1)")
        return dump(connection)
