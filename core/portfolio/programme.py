"""Reinsurance programmes from JSON, by the names of the Open Exposure Data (OED) 5.0 standard.

``{"layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 5e6, "OccLimit": 1e7}]}``

Amounts are in the currency of the losses, and of the whole layer (100 %). Null, as a field that
is left out, is no limit, no attachment and no restriction; OED's 0 for no limit is refused. Layers
of lower ``InuringPriority`` apply first, those of equal ones to the same losses.

====================================  ==============================================================
ReinsNumber, ReinsName                which layer; numbers are unique
ReinsLayerNumber                      for information
ReinsType                             FAC, QS, SS, PR, CXL, AXL of OED; SL, a stop loss, is ours
InuringPriority                       1 unless given
ReinsPeril                            perils, split by ``;``, as the events have them; AA1 is any
CededPercent                          proportion taken before all other terms; 1 unless given
RiskAttachment, RiskLimit             of each risk; for SS the retained line, and the capacity
OccFranchiseDed, OccReverseFranchise  a loss up to the first, or above the second, is not paid
OccAttachment, OccLimit               of each loss occurrence
AggAttachment, AggLimit               of each period
Reinstatement, ReinstatementCharge    their number, and the charge of all or of each: ``0;0.5;1``
ReinsPremium                          of which reinstatement premiums and rates on line are made
PlacedPercent, TreatyShare            proportions, applied last; 1 unless given
ReinsCurrency                         the same for all layers, and that of the losses
AttachmentBasis, UseReinsDates        LO and N, which they are anyway
Scope                                 ours: labels of the parts of the subject that it covers
HoursClause                           ours: ``{"Hours": 72, "Start": "first-loss"}``, or ``cedant``
====================================  ==============================================================

:data:`REFUSED` has the rest of OED's fields, each with the reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple, NoReturn, cast

from ..errors import InputError

MAX_LAYERS = 100
MAX_AMOUNT = 1e18
"""More is a way to say that there is no limit."""
MAX_CHARGE = 10.0
MAX_REINSTATEMENTS = 1000
MAX_HOURS = 8784.0
"""A leap year."""
_MAX_LABEL = 200
_MAX_LABELS = 10_000

_SCOPE = "Say with Scope which parts of the subject it covers."
REFUSED: Mapping[str, str] = {
    "DeemedPercentPlaced": "A notional contract cedes nothing. Leave the layer out, or place it.",
    "AggPeriod": "Aggregate terms are those of a period of the loss set.",
    "ReinsFXrate": "Give amounts in the currency of the losses.",
    "OriginalCurrency": "Give amounts in the currency of the losses.",
    "RateOfExchange": "Give amounts in the currency of the losses.",
    "ReinsInceptionDate": "A layer is in force in all periods. Filter the losses by month instead.",
    "ReinsExpiryDate": "A layer is in force in all periods. Filter the losses by month instead.",
    "RiskLevel": "The summaries of the loss set are the risks.",
    "OEDVersion": "The fields are those of OED 5.0.",
    **dict.fromkeys(
        ("PortNumber", "AccNumber", "PolNumber", "LocGroup", "LocNumber", "CedantName"), _SCOPE
    ),
    **dict.fromkeys(("ProducerName", "LOB", "CountryCode", "ReinsTag"), _SCOPE),
}
"""Fields of OED's ReinsInfo and ReinsScope that are refused."""


class Kind(NamedTuple):
    """What a type of layer may have."""

    title: str
    needs: tuple[str, ...]
    """Fields of which one is given."""
    takes: tuple[str, ...]
    """Further ones, besides those of every layer."""
    of_risks: bool = False


_AGGREGATE = ("AggAttachment", "AggLimit")
_OCCURRENCE = ("OccAttachment", "OccLimit")
_RISK = ("RiskAttachment", "RiskLimit")
_FRANCHISES = ("OccFranchiseDed", "OccReverseFranchise")
_REINSTATED = ("Reinstatement", "ReinstatementCharge")
KINDS: Mapping[str, Kind] = {
    "FAC": Kind("a facultative cover", (*_RISK, "CededPercent"), _AGGREGATE, of_risks=True),
    "QS": Kind(
        "a quota share", ("CededPercent",),
        ("RiskLimit", "OccLimit", "AggLimit", *_FRANCHISES, "HoursClause"),
    ),
    "SS": Kind("a surplus share", ("RiskAttachment",), ("RiskLimit", "OccLimit", "AggLimit"),
               of_risks=True),
    "PR": Kind(
        "a per-risk excess of loss", _RISK,
        ("CededPercent", *_OCCURRENCE, *_AGGREGATE, *_REINSTATED), of_risks=True,
    ),
    "CXL": Kind(
        "a catastrophe excess of loss", _OCCURRENCE,
        ("CededPercent", *_FRANCHISES, *_AGGREGATE, *_REINSTATED, "HoursClause"),
    ),
    "AXL": Kind(
        "an aggregate excess of loss", _AGGREGATE,
        ("CededPercent", *_FRANCHISES, *_OCCURRENCE, "HoursClause"),
    ),
    "SL": Kind("a stop loss", _AGGREGATE, ("CededPercent",)),
}  # fmt: skip
_EVERY = (
    *("ReinsNumber", "ReinsName", "ReinsLayerNumber", "ReinsType", "InuringPriority"),
    *("ReinsPeril", "ReinsPremium", "PlacedPercent", "TreatyShare", "ReinsCurrency"),
    *("AttachmentBasis", "UseReinsDates", "Scope"),
)
FIELDS: Sequence[str] = tuple(
    dict.fromkeys((*_EVERY, *(f for kind in KINDS.values() for f in (*kind.needs, *kind.takes))))
)
"""Fields of a layer."""
ALL_PERILS = "AA1"
_LIMITS = ("RiskLimit", "OccLimit", "AggLimit", "OccReverseFranchise")
_ATTACHMENTS = ("RiskAttachment", "OccAttachment", "AggAttachment", "OccFranchiseDed")
Start = Literal["first-loss", "cedant"]


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer whose terms are valid together; amounts are infinite where there is no limit."""

    place: str
    """Where it is in the programme, such as ``layers[2]``."""
    number: int
    name: str
    kind: str
    """A key of ``KINDS``."""
    priority: int
    perils: tuple[str, ...]
    """Empty for all."""
    scope: tuple[str, ...]
    """Labels of the parts that it covers; empty for all."""
    share: float
    risk_attachment: float
    risk_limit: float
    franchise: float
    reverse_franchise: float
    attachment: float
    limit: float
    aggregate_attachment: float
    aggregate_limit: float
    """Of a period, with that of the reinstatements."""
    charges: tuple[float, ...]
    """Of each reinstatement, as a proportion of the premium."""
    premium: float | None
    placed: float
    """Share of the layer that is placed."""
    hours: float
    """Of its hours clause; 0 if it has none."""
    start: Start

    @property
    def of_risks(self) -> bool:
        """Whether it has terms of risks."""
        return KINDS[self.kind].of_risks or self.risk_limit < math.inf

    @property
    def line(self) -> float:
        """The limit that is reinstated, and that rates are on; infinite if there is none."""
        if self.kind in {"FAC", "PR"}:
            return self.risk_limit
        if self.kind in {"AXL", "SL"} or self.limit == math.inf:
            return self.aggregate_limit
        return self.limit

    @property
    def exhaustible(self) -> bool:
        """Whether a period or an occurrence can exhaust it."""
        return min(self.limit, self.aggregate_limit) < math.inf

    def describe(self) -> str:
        """Number, name and place, for messages."""
        name = f" {self.name!r}" if self.name else ""
        return f"layer {self.number}{name} ({self.place})"


@dataclass(frozen=True, slots=True)
class Programme:
    """Layers by priority, then in the order in which they were given."""

    layers: tuple[Layer, ...]
    currency: str | None
    """Of their amounts; None if they do not say."""


def parse_programme(values: object) -> Programme:
    """Parse a programme from JSON values.

    Raises:
        InputError: a field is unknown, missing or invalid, or contradicts another; the message
            begins with its path, such as ``layers[2].OccLimit``.
    """
    if not isinstance(values, Mapping):
        _refuse("the programme", f"is {_quoted(values)}", 'Give {"layers": [{…}, …]}.')
    for name in sorted(map(str, values.keys() - {"layers"})):
        _refuse(name[:_MAX_LABEL], "is no member of a programme", "Its only member is layers.")
    listed = values.get("layers")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_LAYERS:
        fault = f"has {len(listed)} entries" if isinstance(listed, list) else "is no list"
        _refuse("layers", fault, f"Give a list of 1 to {MAX_LAYERS} layers.")
    layers = [_Parser(f"layers[{k}]", given).layer() for k, given in enumerate(listed)]
    _check_numbers(layers)
    currencies = {c: f"layers[{k}]" for k, given in enumerate(listed)
                  if (c := given.get("ReinsCurrency")) is not None}  # fmt: skip
    if len(currencies) > 1:
        (one, at), (other, place) = list(currencies.items())[:2]
        _refuse(f"{place}.ReinsCurrency", f"is {other}, and that of {at} is {one}",
                "Give all amounts in one currency.")  # fmt: skip
    ordered = sorted(layers, key=lambda layer: layer.priority)
    return Programme(tuple(ordered), next(iter(currencies), None))


def _check_numbers(layers: Sequence[Layer]) -> None:
    seen: dict[int, Layer] = {}
    for layer in layers:
        other = seen.setdefault(layer.number, layer)
        if other is not layer:
            fault = f"is {layer.number}, as that of {other.place}"
            if other.priority != layer.priority:
                low, high = sorted((other.priority, layer.priority))
                fault += f": with priorities {low} and {high} the layer would inure to itself"
            _refuse(f"{layer.place}.ReinsNumber", fault, "Give each layer a number of its own.")


def _refuse(path: str, fault: str, hint: str) -> NoReturn:
    raise InputError(f"{path} {fault}", hint=hint, parameter="programme")


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - fits a line


class _Parser:
    """Reads the fields of one layer."""

    def __init__(self, place: str, given: object) -> None:
        if not isinstance(given, Mapping):
            _refuse(place, f"is {_quoted(given)}", 'Give an object, {"ReinsNumber": 1, …}.')
        self._place = place
        self._given = {name: value for name, value in given.items() if value is not None}

    def layer(self) -> Layer:
        """Parse all of them."""
        kind = self._kind()
        self._check_names(kind)
        for name, only in (("AttachmentBasis", "LO"), ("UseReinsDates", "N")):
            if self._given.get(name, only) != only:
                self._refuse(name, "is not supported", f"Give {only}, or leave it out.")
        self._text("ReinsCurrency"), self._integer("ReinsLayerNumber", 1)
        amounts = {name: self._amount(name) for name in (*_ATTACHMENTS, *_LIMITS)}
        charges, hours = self._charges(kind, amounts), self._hours()
        aggregate = amounts["AggLimit"]
        if charges is not None:
            reinstated = amounts["RiskLimit" if kind == "PR" else "OccLimit"]
            aggregate = min(aggregate, (len(charges) + 1) * reinstated)
        self._check_payable(amounts)
        perils = self._labels("ReinsPeril", self._text("ReinsPeril").split(";"))
        return Layer(
            place=self._place,
            number=self._integer("ReinsNumber", None),
            name=self._text("ReinsName"),
            kind=kind,
            priority=self._integer("InuringPriority", 1),
            perils=() if ALL_PERILS in perils else perils,
            scope=self._labels("Scope", self._given.get("Scope", [])),
            share=self._share("CededPercent"),
            risk_attachment=amounts["RiskAttachment"],
            risk_limit=amounts["RiskLimit"],
            franchise=amounts["OccFranchiseDed"],
            reverse_franchise=amounts["OccReverseFranchise"],
            attachment=amounts["OccAttachment"],
            limit=amounts["OccLimit"],
            aggregate_attachment=amounts["AggAttachment"],
            aggregate_limit=aggregate,
            charges=charges or (),
            premium=self._amount("ReinsPremium") if "ReinsPremium" in self._given else None,
            placed=self._share("PlacedPercent") * self._share("TreatyShare"),
            hours=hours,
            start=self._start(),
        )

    def _refuse(self, name: str, fault: str, hint: str) -> NoReturn:
        _refuse(f"{self._place}.{name}", fault, hint)

    def _kind(self) -> str:
        kind = self._given.get("ReinsType")
        if not isinstance(kind, str) or kind not in KINDS:
            fault = "is missing" if kind is None else f"is {_quoted(kind)}"
            known = ", ".join(f"{name} ({row.title})" for name, row in KINDS.items())
            self._refuse("ReinsType", fault, f"Use {known}.")
        return kind

    def _check_names(self, kind: str) -> None:
        row = KINDS[kind]
        for name in sorted(map(str, self._given)):
            if name in REFUSED:
                self._refuse(name, "is not supported", REFUSED[name])
            if name not in FIELDS:
                known = {field.lower(): field for field in FIELDS}
                near = get_close_matches(name[:_MAX_LABEL].lower(), known, 1)
                meant = f"Did you mean {known[near[0]]}? " if near else ""
                hint = f"{meant}Use {', '.join(FIELDS)}."
                self._refuse(name[:_MAX_LABEL], "is no field of a layer", hint)
            if name not in (*_EVERY, *row.needs, *row.takes):
                takes = ", ".join((*row.needs, *row.takes))
                self._refuse(name, f"is no term of {row.title}", f"{kind} takes {takes}.")
        if not any(name in self._given for name in row.needs):
            self._refuse(row.needs[0], f"is missing: {row.title} would take every loss whole",
                         f"Give {' or '.join(row.needs)}.")  # fmt: skip

    def _number(self, name: str, value: object, most: float, hint: str) -> float:
        """A number from 0 on."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self._refuse(name, f"is {_quoted(value)}", hint)
        if not 0 <= value <= most:  # NaN, too; and integers of any size
            self._refuse(name, f"is {_quoted(value)}", hint)
        return float(value)

    def _amount(self, name: str) -> float:
        is_limit = name in _LIMITS
        if name not in self._given:
            return math.inf if is_limit else 0.0
        none = "no limit" if is_limit else "none"
        hint = f"Give an amount of 0 to {MAX_AMOUNT:g}, or null for {none}."
        amount = self._number(name, self._given[name], MAX_AMOUNT, hint)
        if amount == 0 and is_limit:
            self._refuse(name, "is 0", f"Give an amount above 0, or null for {none}.")
        return amount

    def _share(self, name: str) -> float:
        hint = "Give a proportion of 0 to 1, such as 0.12 for 12 %."
        return self._number(name, self._given.get(name, 1), 1.0, hint)

    def _integer(self, name: str, default: int | None) -> int:
        value = self._given.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
            fault = "is missing" if value is None else f"is {_quoted(value)}"
            self._refuse(name, fault, f"Give an integer from 1 to {(1 << 31) - 1}.")
        return value

    def _text(self, name: str) -> str:
        value = self._given.get(name, "")
        most = _MAX_LABELS if name == "ReinsPeril" else _MAX_LABEL
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            self._refuse(name, f"is {_quoted(value)}", f"Give up to {most} printable characters.")
        return value

    def _labels(self, name: str, values: object) -> tuple[str, ...]:
        hint = f"Give 1 to {_MAX_LABELS} different labels."
        if name not in self._given:
            return ()
        if not isinstance(values, list) or not 0 < len(values) <= _MAX_LABELS:
            self._refuse(name, f"is {_quoted(values)}", hint)
        labels = [v.strip() for v in values if isinstance(v, str) and 0 < len(v) <= _MAX_LABEL]
        if len(set(labels)) < len(values) or "" in labels:
            self._refuse(name, f"is {_quoted(values)}", hint)
        return tuple(labels)

    def _charges(self, kind: str, amounts: Mapping[str, float]) -> tuple[float, ...] | None:
        """The charge of each reinstatement; None if they are not limited."""
        given = self._given.get("ReinstatementCharge")
        if "Reinstatement" not in self._given:
            if given is not None:
                self._refuse("ReinstatementCharge", "is that of no number of reinstatements",
                             "Give Reinstatement, their number.")  # fmt: skip
            return None
        limit = "RiskLimit" if kind == "PR" else "OccLimit"
        hint = f"Give an integer from 0 to {MAX_REINSTATEMENTS}, or null for no limit."
        count = self._given["Reinstatement"]
        self._number("Reinstatement", count, MAX_REINSTATEMENTS, hint)
        if not isinstance(count, int):
            self._refuse("Reinstatement", f"is {count}", hint)
        if amounts[limit] == math.inf:
            self._refuse("Reinstatement", "is that of an unlimited layer", f"Give {limit}.")
        charges = list(self._listed_charges(given))
        if count == 0 and charges:
            self._refuse("ReinstatementCharge", "is that of no reinstatement", "Leave it out.")
        if count and not charges and "ReinsPremium" in self._given:
            self._refuse("ReinstatementCharge", "is missing", "Give 0 if reinstatements are free.")
        if len(charges) not in {0, 1, count}:
            self._refuse("ReinstatementCharge", f"has {len(charges)} charges",
                         f"Give one, or each of the {count}.")  # fmt: skip
        if any(charges) and "ReinsPremium" not in self._given:
            self._refuse("ReinstatementCharge", "is a proportion of no premium",
                         "Give ReinsPremium.")  # fmt: skip
        return tuple(charges if len(charges) == count else (charges or [0.0]) * count)

    def _listed_charges(self, given: object) -> Iterator[float]:
        hint = f"Give proportions of 0 to {MAX_CHARGE:g}, such as 1 for 100 %, or 0;0.5;1."
        values = given if isinstance(given, list) else [] if given is None else [given]
        if isinstance(given, str):
            try:
                values = [float(text) for text in given.split(";")]
            except ValueError:
                self._refuse("ReinstatementCharge", f"is {_quoted(given)}", hint)
        for value in values:
            yield self._number("ReinstatementCharge", value, MAX_CHARGE, hint)

    def _check_payable(self, amounts: Mapping[str, float]) -> None:
        reverse = amounts["OccReverseFranchise"]
        for name in ("OccAttachment", "OccFranchiseDed"):
            if reverse <= amounts[name]:
                self._refuse("OccReverseFranchise", f"is {reverse:g}, and {name} {amounts[name]:g}:"
                             " the layer would never pay", f"Give more than {name}.")  # fmt: skip

    def _clause(self) -> Mapping[str, Any]:
        clause = self._given.get("HoursClause", {})
        if not isinstance(clause, Mapping) or ("HoursClause" in self._given and not clause):
            self._refuse("HoursClause", f"is {_quoted(clause)}",
                         'Give {"Hours": 72, "Start": "first-loss"}.')  # fmt: skip
        return clause

    def _hours(self) -> float:
        clause = self._clause()
        for name in sorted(map(str, clause.keys() - {"Hours", "Start"})):
            self._refuse(f"HoursClause.{name[:_MAX_LABEL]}", "is no member of an hours clause",
                         "Use Hours, Start.")  # fmt: skip
        if not clause:
            return 0.0
        hint = f"Give a number of hours, above 0 and up to {MAX_HOURS:g}."
        hours = self._number("HoursClause.Hours", clause.get("Hours", -1), MAX_HOURS, hint)
        if hours == 0:
            self._refuse("HoursClause.Hours", "is 0", hint)
        return hours

    def _start(self) -> Start:
        start = self._clause().get("Start", "first-loss")
        if start not in ("first-loss", "cedant"):
            self._refuse("HoursClause.Start", f"is {_quoted(start)}", "Use first-loss or cedant.")
        return cast("Start", start)
