"""The testing kit's restore machine on the domains of the guarantees: the toy bank and the real task table with
commands that fit the state, and the whole model with any commands at all."""

from __future__ import annotations

from engine.testing import RestoreMachine, restore_machine
from engine.testing.proposals.tasks import task_command
from projections.model import MODEL
from tests.guarantees.domain import bank_command
from tests.toy import BANK

__all__ = ["MACHINES"]

MACHINES: dict[str, type[RestoreMachine]] = {
    "bank": restore_machine(BANK, name="BankMachine", propose=bank_command),
    "bank in a file": restore_machine(BANK, name="BankInFile", propose=bank_command, backend="sqlite"),
    "tasks": restore_machine(MODEL, name="TasksMachine", propose=task_command),
    "tasks in a file": restore_machine(MODEL, name="TasksInFile", propose=task_command, backend="sqlite"),
    "everything": restore_machine(MODEL, name="WholeModel"),
}
