"""The register of what users of comparable systems reported, in our words: task tables and task graphs of agent
runtimes (K, Z), other event stores and runtimes (X), the eventsourcing library (E). A row is a kind of fault. It must
never list a row without either a test that cites its id or the reason why there is none."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["ROWS", "Row"]

FOLLOWERS = "comes with: followers. Every reader asks, the read model too: nothing is pushed, so nothing gets lost"


class Row(NamedTuple):
    """Where it was reported, what it was, and why no test holds it yet (None: tests cite its id)."""

    thread: str
    fault: str
    reason: str | None = None


ROWS = {
    "K1": Row("task table", "a checkpoint that could not be written was taken for a lost commit"),
    "K2": Row("task table", "a run that had been rebuilt was ended as an error instead of going on"),
    "K4": Row("task table", "a denied call was carried out anyway and had two results"),
    "K5": Row("task table", "an approval dropped the denial of a sibling"),
    "K7": Row("task table", "turns without a tool call did not count against the budget"),
    "K8": Row("task table", "two different actions were the same by their truncated arguments"),
    "K10": Row("task table", "an exhausted retry was entered again for ever"),
    "K11": Row("task table", "a nested budget was reserved twice, and given back twice"),
    "K13": Row("task table", "a forged end in another log orphaned a live journal"),
    "K14": Row("task table", "a stale writer appended although the run had become another"),
    "K16": Row("task table", "a legitimate retry was refused: only the last 256 ids were remembered"),
    "K17": Row("task table", "one failure at a limit switched checkpoints off for ever"),
    "K19": Row("task table", "a resumed loop began at iteration 0 again"),
    "K20": Row("task table", "nodes that were added vanished on resume, and a late end met the wrong node"),
    "K22": Row("task table", "a completion that came twice counted twice"),
    "K23": Row("task table", "a concurrency of nothing parked every node and called the empty result completed"),
    "K25": Row("task table", "the order of waking differed after a restore"),
    "K26": Row("task table", "the set of seen ids grew without bound; an option was accepted and not passed on"),
    "Z1": Row("bug-ops/zeph #4747", "progress was only saved when the loop ended"),
    "Z2": Row("bug-ops/zeph #4810", "two ways to change a graph were not saved"),
    "Z4": Row("bug-ops/zeph #3107", "a verdict was asked for again after a restart"),
    "Z5": Row("bug-ops/zeph #5403", "a plan that waited for a verdict was ended as a deadlock"),
    "Z7": Row("bug-ops/zeph #1879", "a graph had failed, and none of its tasks had"),
    "Z8": Row("bug-ops/zeph #1458", "a retry waited on tasks that had stopped running"),
    "Z10": Row("bug-ops/zeph #6396", "a correction did not reach what depended on it"),
    "Z11": Row("bug-ops/zeph #6244", "the fallback ran on success"),
    "Z13": Row("bug-ops/zeph #6390", "what was declined was stored and shown nowhere"),
    "Z14": Row("bug-ops/zeph #6288", "what the last task held was never let go"),
    "Z16": Row("bug-ops/zeph #5803", "a statement worked on one database and failed on another"),
    "Z17": Row("bug-ops/zeph #6251", "no run ever reached an end, so none was ever purged"),
    "Z19": Row("bug-ops/zeph #6254", "what had crashed ran for ever; what was alive looked old"),
    "Z20": Row("bug-ops/zeph #6122", "two processes began one run and wrote one journal"),
    "Z22": Row("bug-ops/zeph #5452", "durability was switched on and nothing was written"),
    "Z23": Row("bug-ops/zeph #5944", "a resumed parent spawned a finished child again"),
    "Z25": Row("bug-ops/zeph #6027", "a notification was sent again at each resume"),
    "Z26": Row(
        "bug-ops/zeph #6454",
        "after a change of keys every older run was refused",
        "comes with: encryption and keyed chains. A chain has no key yet, so none can be changed",
    ),
    "Z28": Row("bug-ops/zeph #5874", "setting up again overwrote the key that everything was written with"),
    "Z29": Row("bug-ops/zeph #6360", "deleted rows and a stripped chain were accepted"),
    "Z31": Row("bug-ops/zeph #5464", "a resumed conversation had results in the wrong place"),
    "Z32": Row("bug-ops/zeph #5851", "a resume held the whole log twice"),
    "X2": Row("JasperFx/marten #5454", "a gap in the numbers stalled readers"),
    "X3": Row("commanded/eventstore #309", "notifications were lost while the connection was", FOLLOWERS),
    "X5": Row("looplab/eventhorizon #414", "a snapshot of another version made events count twice"),
    "X6": Row("a downstream project", "fields older than the snapshot were gone after later events"),
    "X8": Row("NEventStore #352", "a retry cleared what was pending and the conflict with it"),
    "X9": Row("eventflow #16", "the store in memory let two writers in"),
    "X11": Row("simonw/datasette #2683", "connections to one shared database in memory did not wait for its locks"),
    "X12": Row("earendil-works/absurd #96", "a timeout was told from an arrival by an empty payload"),
    "X14": Row("RailsEventStore #113", "an event could not be renamed or superseded"),
    "X15": Row("openai/openai-agents-python #4150", "branches of one name were merged"),
    "X17": Row("openai/codex #35091", "processes on one file damaged it"),
    "X18": Row("anomalyco/opencode #21215", "the lock was held while a large output was encoded"),
    "X20": Row("google/adk-python #3717", "equal times counted as stale"),
    "X21": Row("a2aproject/a2a-python #278", "an end was set twice by updates at one moment"),
    "X23": Row("pydantic/pydantic-ai #5875", "definitions kept aside changed a replay; what was too large failed late"),
    "X24": Row("mem0ai/mem0 #7196", "connections did not wait, or waited without end"),
    "X26": Row("PostHog/posthog #36090", "users had to write the migration of old state themselves"),
    "X27": Row("langchain-ai/docs #445", "nothing said how old runs survive new code"),
    "E2": Row("pyeventsourcing/eventsourcing #283", "a field had another type after a snapshot"),
    "E3": Row("pyeventsourcing/eventsourcing #260", "what was restored from a snapshot was not equal"),
    "E5": Row("pyeventsourcing/eventsourcing #295", "inherited events were not recognised"),
    "E6": Row("pyeventsourcing/eventsourcing #296", "ids that are text were refused"),
    "E8": Row("pyeventsourcing/eventsourcing #246", "without the cache nothing was found"),
    "E9": Row("pyeventsourcing/eventsourcing #164", "the code that checks the chain was never called"),
    "E11": Row("pyeventsourcing/eventsourcing #215", "an event raised while another was applied broke the chain"),
    "E12": Row("pyeventsourcing/eventsourcing #116", "a changed record went unnoticed"),
    "E14": Row("pyeventsourcing/eventsourcing #305", "one lost notification blocked a subscriber for ever", FOLLOWERS),
    "E15": Row("pyeventsourcing/eventsourcing #306", "stopping a subscriber hung on its full queue", FOLLOWERS),
    "E17": Row("pyeventsourcing/eventsourcing #259", "a backlog was not taken up after a restart"),
    "E18": Row("pyeventsourcing/eventsourcing #227", "a follower read events with the wrong types"),
    "E20": Row("pyeventsourcing/eventsourcing #39", "snapshots of older code were used"),
    "E21": Row("pyeventsourcing/eventsourcing #13", "the order followed a clock"),
    "E23": Row("pyeventsourcing/eventsourcing #281", "a projection could not be added to a history"),
    "E24": Row("pyeventsourcing/eventsourcing #237", "two stores in one database got into each other's tables"),
    "E26": Row("pyeventsourcing/eventsourcing #133", "a subscriber was given a list and not an event", FOLLOWERS),
    "E27": Row("pyeventsourcing/eventsourcing #250", "a function that forgot to return left no state"),
    "E29": Row("pyeventsourcing/eventsourcing on SQLite", "the number of a deleted row was given to the next"),
    "E30": Row("pyeventsourcing/eventsourcing on SQLite", "there was no subscription on SQLite", FOLLOWERS),
}
