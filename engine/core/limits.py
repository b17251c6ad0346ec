"""Every limit of refold, in one place. A limit that is not named here must not exist elsewhere.

What is over its limit is refused before anything is written: one value in a field with
:class:`engine.core.errors.InvalidValue` and the path to it, everything else with
:class:`engine.core.errors.LimitExceeded` naming the limit by the constant's own name.
"""

from __future__ import annotations

from typing import Final

ID_BYTES_MAX: Final = 256
"""UTF-8 bytes of any id: run, task, context, graph, command, actor."""

TEXT_BYTES_MAX: Final = 8 * 1024 * 1024
"""UTF-8 bytes of one text field."""

EVENT_BYTES_MAX: Final = 16 * 1024 * 1024
"""Encoded bytes of one event."""

COMMIT_EVENTS_MAX: Final = 100_000
"""Events in one commit, whether from one command or from a batch."""

COMMIT_BYTES_MAX: Final = 64 * 1024 * 1024
"""Encoded bytes of one commit, which is one stored row."""

COMMIT_ITEMS_MAX: Final = 8_000_000
"""CBOR items in one commit, each list, map, text and number one of them: they bound the memory that reading it takes.
Empty lists are one byte each on disk, next to nothing when they are deflated, and 64 bytes each in memory."""

IMPORT_BYTES_MAX: Final = 256 * 1024 * 1024
"""Bytes of one recording of a foreign runtime; it is read whole."""

NESTING_DEPTH_MAX: Final = 64
"""Levels of lists and maps inside one JSON value (rule of the task table's contract)."""

ENCODED_DEPTH_MAX: Final = NESTING_DEPTH_MAX + 16
"""Levels of lists and maps in anything that is encoded: a value, and the record, event and envelope round it."""

CONTAINER_ENTRIES_MAX: Final = 1024
"""Entries of one list or map inside one JSON value (rule of the task table's contract)."""

JSON_ENTRIES_MAX: Final = 1_000_000
"""Entries of all lists and maps inside one JSON value, each counted as often as it would be written: a list that holds
one list many times over, level upon level, is small in memory and without end on disk."""

SWARM_WORKERS_MAX: Final = 65_536
"""Workers of one swarm."""

U32_MAX: Final = 2**32 - 1
U64_MAX: Final = 2**64 - 1
I64_MIN: Final = -(2**63)
I64_MAX: Final = 2**63 - 1

TIME_MS_MAX: Final = 2**53 - 1
"""Unix milliseconds, kept in the range that every JSON reader holds exactly."""

SUMMARY_ENTRIES_MAX: Final = 32
"""Entries that each list of a context's summary keeps; the oldest go first (rule of the contexts' contract)."""

NARRATIVE_BYTES_MAX: Final = 8_000
"""UTF-8 bytes of the narrative that a fallback compaction leaves in a context's summary; the oldest lines go first."""

TRANSCRIPT_CHARS_MAX: Final = 2_000
"""Code points of one message's text, or of one call's arguments, in the transcript that a compaction summarises."""

PLAN_ITEMS_DEFAULT: Final = 32
"""Items of a context's plan, unless the command says otherwise."""

SKILLS_LOADED_DEFAULT: Final = 8
"""Skills loaded in one context, unless the command says otherwise."""

GRAPH_TASKS_MAX: Final = 20_000
"""Nodes of one task graph. A graph's own ``max_tasks`` may be lower; with this one, what follows from any single
command fits in one commit (at most four events a node)."""
