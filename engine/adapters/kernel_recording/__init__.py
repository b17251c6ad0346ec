"""Recordings of the DeepStrike agent kernel, followed step by step as facts about tasks. An adapter must never look at
the task tables a recording carries (they are there to compare with), nor repair what it cannot follow.

What each step means for the task table, where the kernel is followed and where it is not:

- ``configure_operation`` opens the root, ``start_operation`` starts it. Every effect moves the root as the kernel moves
  it: ``call_provider`` and ``execute_tools`` let it run, ``request_approval`` and ``spawn_tasks`` suspend it.
- Usage is reported where the recording reports it: a child's with its completion (input and output tokens, turns),
  the root's own with the terminal. The kernel's terminal does not count the children, so nothing is counted twice.
  What the host observed of one provider call is no report: the kernel keeps its own total, which the terminal states.
- A child that is cancelled by its own report is ``user_abort`` and keeps its join result; one that is cancelled with
  the operation, or preempted, has none. A failed workflow leaves its root ``completed``, as the kernel has it.
- An operation that ends over live children cancels them first. The kernel leaves such rows running under a finished
  root, which is no valid table; the step says so in its notes. So it does when the kernel goes on without the answer
  to an approval (that wait ends as timed out), when it ends a task again that is done (here the first end stays), and
  when it ends the root over a late answer about launches although the operation goes on (here the root goes on too).
- A wait for an approval ends when the kernel has the root go on, which need not be at the answer. A join begins with
  every live child, in the order they were spawned; out of an approval the kernel waits for the new ones alone.
- An input that comes again adds nothing; the same id with other content is refused.
- What cannot be a valid table is refused, naming the step and the place: a task id that is spawned twice in one run, a
  root that runs on while it waits for its children, an effect or attempt that is not there.
"""

from __future__ import annotations

from engine.adapters.kernel_recording import recorded_table
from engine.adapters.kernel_recording.follow import Step, steps
from engine.adapters.kernel_recording.reading import detect, read

__all__ = ["Step", "detect", "read", "recorded_table", "steps"]
