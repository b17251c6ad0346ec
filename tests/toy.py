"""A toy projection of accounts, for testing the engine without a domain: small enough to be read at a glance, with
every kind of table."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, ClassVar

from engine.core.catalog import EventType, Upcast, Wire
from engine.core.command import CommandModel
from engine.core.decider import Decision, Moment
from engine.core.errors import NotFound, Refused
from engine.core.fields import ID, JSON, U64, Field
from engine.core.limits import U64_MAX
from engine.core.model import Model
from engine.core.table import Table

OPENED = EventType("account.opened", (Field("account", ID), Field("note", JSON)), number=1001)
PAID_1 = EventType("account.paid", (Field("account", ID), Field("amount", U64)), number=1002)
PAID = EventType(
    "account.paid", (Field("account", ID), Field("amount", U64), Field("note", JSON)), version=2, number=1002
)
CLOSED = EventType("account.closed", (Field("account", ID),), number=1003)
WROTE = EventType("account.wrote", (Field("account", ID), Field("letter", JSON)), number=1004)


class Account:
    """A balance, and how many letters were written."""

    __slots__ = ("balance", "letters", "note")

    def __init__(self, balance: int, letters: int, note: Any) -> None:
        self.balance, self.letters, self.note = balance, letters, deepcopy(note)

    def dump(self) -> list[Any]:
        return [self.balance, self.letters, deepcopy(self.note)]

    @classmethod
    def load(cls, dumped: list[Any]) -> Account:
        return cls(*dumped)


class Letter:
    """A letter, whose content stands in the journal."""

    __slots__ = ("seq", "text")

    def __init__(self, seq: int, text: Any) -> None:
        self.seq, self.text = seq, deepcopy(text)

    def dump(self) -> list[Any]:
        return [self.seq, deepcopy(self.text)]

    @classmethod
    def load(cls, dumped: list[Any]) -> Letter:
        return cls(*dumped)


class Bank:
    """The toy state: accounts by key, letters by (account, number), and a derived total."""

    def __init__(self) -> None:
        self.accounts: Table[Account] = Table("accounts", Account, order="key")
        self.letters: Table[Letter] = Table("letters", Letter, order="key", refer=lambda letter: (letter.seq, 0))
        self.total = 0

    @property
    def tables(self) -> tuple[Table[Any], ...]:
        return (self.accounts, self.letters)

    def reindex(self) -> None:
        self.total = sum(account.balance for account in self.accounts.rows.values())


def _opened(state: Bank, wire: Wire, seq: int) -> None:
    state.accounts.add(wire[2], Account(0, 0, wire[3]))


def _paid(state: Bank, wire: Wire, seq: int) -> None:
    state.accounts.edit(wire[2]).balance += wire[3]
    state.total += wire[3]


def _closed(state: Bank, wire: Wire, seq: int) -> None:
    account = state.accounts.rows[wire[2]]
    state.total -= account.balance
    for number in range(account.letters):
        state.letters.remove((wire[2], number))
    state.accounts.remove(wire[2])


def _wrote(state: Bank, wire: Wire, seq: int) -> None:
    account = state.accounts.edit(wire[2])
    state.letters.add((wire[2], account.letters), Letter(seq, wire[3]))
    account.letters += 1


class Open(CommandModel):
    projection: ClassVar[str] = "bank"
    name: ClassVar[str] = "open"
    account: str
    note: Any = None


class Pay(CommandModel):
    projection: ClassVar[str] = "bank"
    name: ClassVar[str] = "pay"
    account: str
    amount: int
    note: Any = None


class Close(CommandModel):
    projection: ClassVar[str] = "bank"
    name: ClassVar[str] = "close"
    account: str


class Write(CommandModel):
    projection: ClassVar[str] = "bank"
    name: ClassVar[str] = "write"
    account: str
    letter: Any


class BankProjection:
    """Accounts: open, pay, write, close."""

    name = "bank"
    events = (OPENED, PAID, CLOSED, WROTE)
    upcasts = (Upcast(PAID_1, lambda fields: [*fields, None]),)
    evolve: ClassVar[dict[str, Any]] = {
        "account.opened": _opened,
        "account.paid": _paid,
        "account.closed": _closed,
        "account.wrote": _wrote,
    }

    def initial(self) -> Bank:
        return Bank()

    def decide(self, state: Bank, command: Any, moment: Moment) -> Sequence[Wire]:
        decision = Decision()
        if isinstance(command, Open):
            if command.account in state.accounts:
                return []
            decision.events.append(OPENED.check({"account": command.account, "note": command.note}))
            return decision.events
        if command.account not in state.accounts:
            raise NotFound(f"no account {command.account!r}", hint="open it first")
        if isinstance(command, Pay):
            if command.amount == 13:
                raise Refused("13 is refused", hint="pay another amount")
            paid = PAID.check({"account": command.account, "amount": command.amount, "note": command.note})
            self._refuse_too_much(state, paid)
            decision.events.append(paid)
        elif isinstance(command, Write):
            decision.events.append(WROTE.check({"account": command.account, "letter": command.letter}))
        else:
            decision.emit(CLOSED, command.account)
        return decision.events

    def admit(self, state: Bank, wire: Wire, moment: Moment) -> Sequence[Wire]:
        if wire[0] != OPENED.tag and wire[2] not in state.accounts:
            raise NotFound(f"no account {wire[2]!r}", hint="open it first")
        if wire[0] == OPENED.tag and wire[2] in state.accounts:
            raise Refused(f"account {wire[2]!r} exists", hint="use another id")
        if wire[0] == PAID.tag:
            self._refuse_too_much(state, wire)
        return [wire]

    @staticmethod
    def _refuse_too_much(state: Bank, paid: Wire) -> None:
        """A record must hold nothing that cannot be stored."""
        if state.accounts.rows[paid[2]].balance + paid[3] > U64_MAX:
            raise Refused(f"account {paid[2]!r} would hold more than 2^64-1", hint="pay less")

    def resolve(self, table: str, key: Any, wire: Wire, seq: int, index: int) -> list[Any]:
        return [seq, wire[3]]


BANK = Model((BankProjection(),))
