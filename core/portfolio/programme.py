"""Reinsurance programmes from JSON, by the names of the Open Exposure Data (OED) 5.0 standard.

``{"layers": [{"ReinsNumber": 1, "ReinsType": "CXL", "OccAttachment": 5e6, "OccLimit": 1e7}]}``

Amounts are in the currency of the losses, and of the whole layer (100 %). Null, as a field that
is left out, is no limit, no attachment and no restriction; OED's 0 for no limit is refused. Layers
of lower ``InuringPriority`` apply first, those of equal ones to the same losses.

====================================  ==============================================================
ReinsNumber, ReinsName                which layer; numbers are unique
ReinsType                             FAC, QS, SS, PR, CXL, AXL of OED; SL, a stop loss, is ours
InuringPriority                       lower ones first, equal ones at once; 1 unless given
ReinsPeril                            perils, split by ``;``, as the events have them; AA1 is any
RiskAttachment, RiskLimit             of each risk's loss, before CededPercent; for SS the retained
                                      line, and the capacity, of its insured value
CededPercent                          proportion of what RiskAttachment and RiskLimit leave of each
                                      loss, before all other terms, as at Oasis; 1 unless given
OccFranchiseDed, OccReverseFranchise  a loss up to the first, or above the second, is not paid
OccAttachment, OccLimit               of each loss occurrence
AggAttachment, AggLimit               of each period
Reinstatement, ReinstatementCharge    their number, and the charge of all or of each: ``0;0.5;1``;
                                      without a number they are unlimited and free. Reinstated is
                                      OccLimit, or if a PR has none, RiskLimit
ReinsPremium                          of which reinstatement premiums and rates on line are made.
                                      The line is OccLimit (but of AXL and SL), else RiskLimit (of
                                      FAC and PR), else AggLimit
PlacedPercent, TreatyShare            proportions, applied last; 1 unless given
ReinsCurrency                         the same for all layers, and that of the losses
Scope                                 ours: labels of the parts of the subject that it covers
HoursClause                           ours: ``{"Hours": 72, "Start": "first-loss"}``, which it is
                                      unless given, or ``cedant``
====================================  ==============================================================

Terms apply in this order; ``clip`` is between 0 and the limit that goes with the attachment::

    FAC, PR, QS   CededPercent x clip(loss of the risk - RiskAttachment)
    SS            clip(insured value - RiskAttachment) / insured value x loss of the risk
    CXL, AXL, SL  CededPercent x loss
    then, of the sum of an occurrence, franchises and clip(sum - OccAttachment),
    of the sum of a period clip(sum - AggAttachment), and PlacedPercent x TreatyShare of that

:data:`REFUSED` has the rest of OED's fields, each with the reason.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn, cast

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
_LEAST_RATE = 1e-3
"""On line, below which a premium of less than 1 is taken for a rate."""

_SCOPE = "Say with Scope which parts of the subject it covers."
_CURRENCY = "Give amounts in the currency of the losses."
_FORCE = "A layer is in force in all periods. Filter the losses by month instead."
REFUSED: Mapping[str, str] = {
    "DeemedPercentPlaced": "A notional contract cedes nothing. Leave the layer out, or place it.",
    "AggPeriod": "Aggregate terms are those of a period of the loss set.",
    "ReinsFXrate": _CURRENCY,
    "OriginalCurrency": _CURRENCY,
    "RateOfExchange": _CURRENCY,
    "ReinsInceptionDate": _FORCE,
    "ReinsExpiryDate": _FORCE,
    "RiskLevel": "The summaries of the loss set are the risks.",
    "OEDVersion": "The fields are those of OED 5.0.",
    "ReinsLayerNumber": "Layers are told apart by ReinsNumber.",
    "AttachmentBasis": "A layer covers the losses that occur in a period, OED's LO.",
    "UseReinsDates": _FORCE,
    **dict.fromkeys(["PortNumber", "AccNumber", "PolNumber", "LocGroup", "LocNumber"], _SCOPE),
    **dict.fromkeys(["CedantName", "ProducerName", "LOB", "CountryCode", "ReinsTag"], _SCOPE),
}
"""Fields of OED's ReinsInfo and ReinsScope that are refused."""


class Kind(NamedTuple):
    """What a type of layer may have."""

    title: str
    needs: str
    """Fields of which one is given."""
    takes: str
    """Further ones, besides those of every layer."""
    of_risks: bool = False

    @property
    def fields(self) -> list[str]:
        """All of them."""
        return f"{self.needs} {self.takes}".split()


_AGG = "AggAttachment AggLimit"
_OCC = "OccAttachment OccLimit"
_RISK = "RiskAttachment RiskLimit"
_FRANCHISES = "OccFranchiseDed OccReverseFranchise"
_MANY = "CededPercent Reinstatement ReinstatementCharge"
_LOSSES = f"CededPercent {_FRANCHISES} HoursClause"
KINDS: Mapping[str, Kind] = {
    "FAC": Kind("a facultative cover", f"{_RISK} CededPercent", _AGG, of_risks=True),
    "QS": Kind("a quota share", "CededPercent", f"RiskLimit OccLimit AggLimit {_LOSSES}"),
    "SS": Kind("a surplus share", "RiskAttachment", "RiskLimit OccLimit AggLimit", of_risks=True),
    "PR": Kind("a per-risk excess of loss", _RISK, f"{_OCC} {_AGG} {_MANY}", of_risks=True),
    "CXL": Kind("a catastrophe excess of loss", _OCC, f"{_AGG} {_MANY} {_LOSSES}"),
    "AXL": Kind("an aggregate excess of loss", _AGG, f"{_OCC} {_LOSSES}"),
    "SL": Kind("a stop loss", _AGG, "CededPercent"),
}
_EVERY = (
    "ReinsNumber ReinsName ReinsType InuringPriority ReinsPeril ReinsPremium PlacedPercent"
    " TreatyShare ReinsCurrency Scope"
)
FIELDS = list(dict.fromkeys(_EVERY.split() + [f for kind in KINDS.values() for f in kind.fields]))
"""Fields of a layer."""
ALL_PERILS = "AA1"
TERMS: Mapping[str, float] = {
    "RiskAttachment": 0.0,
    "RiskLimit": math.inf,
    "CededPercent": 1.0,
    "OccFranchiseDed": 0.0,
    "OccReverseFranchise": math.inf,
    "OccAttachment": 0.0,
    "OccLimit": math.inf,
    "AggAttachment": 0.0,
    "AggLimit": math.inf,
    "PlacedPercent": 1.0,
}
"""Amounts and shares, as kernels have them in columns; and what they are if they are not given."""


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer whose terms are valid together."""

    place: str
    """Where it is in the programme, such as ``layers[2]``."""
    number: int
    name: str
    kind: str
    """A key of ``KINDS``."""
    priority: int
    perils: Sequence[str]
    """Empty for all."""
    scope: Sequence[str]
    """Labels of the parts that it covers; empty for all."""
    terms: Mapping[str, float]
    """Those of ``TERMS``; with reinstatements in the aggregate limit, shares in what is placed."""
    charges: Sequence[float]
    """Of each reinstatement, as a proportion of the premium."""
    premium: float | None
    hours: float
    """Of its hours clause; 0 if it has none."""
    cedant: bool
    """Whether the cedant chooses the windows of the clause."""
    given: Mapping[str, Any]
    """Fields that are no defaults, as they were given; ``Start`` is that of the clause."""

    @property
    def placed(self) -> float:
        """Share of the layer that is placed."""
        return self.terms["PlacedPercent"]

    @property
    def of_risks(self) -> bool:
        """Whether it has terms of risks."""
        return KINDS[self.kind].of_risks or self.terms["RiskLimit"] < math.inf

    @property
    def line(self) -> float:
        """The limit that is reinstated, and that rates are on; infinite if there is none."""
        # Of an occurrence, whatever the risks in it, before that of a risk or of a period.
        names = ["OccLimit"] * (self.kind not in {"AXL", "SL"})
        names += ["RiskLimit"] * (self.kind in {"FAC", "PR"})
        limits = [self.terms[name] for name in (*names, "AggLimit")]
        return next(filter(math.isfinite, limits), math.inf)

    @property
    def exhaustible(self) -> bool:
        """Whether a period or an occurrence can exhaust it."""
        return min(self.terms["OccLimit"], self.terms["AggLimit"]) < math.inf

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        return f"layer {self.number}{name} ({self.place})"


@dataclass(frozen=True, slots=True)
class Programme:
    """Layers by priority, then in the order in which they were given."""

    layers: Sequence[Layer]
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
    layers = [_Parser(f"layers[{k}]", entry).layer() for k, entry in enumerate(listed)]
    _check_numbers(layers)
    currencies = sorted({entry["ReinsCurrency"] for entry in listed if entry.get("ReinsCurrency")})
    if len(currencies) > 1:
        _refuse("layers", f"have ReinsCurrency {' and '.join(currencies)}", "Use one currency.")
    ordered = sorted(layers, key=lambda layer: layer.priority)
    return Programme(ordered, next(iter(currencies), None))


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


def nearest(name: str, known: Iterable[str]) -> str:
    """Ask whether the nearest of the known names was meant; empty if none is near."""
    names = {word.lower(): word for word in known}
    near = get_close_matches(name[:_MAX_LABEL].lower(), names, 1)
    return f"Did you mean {names[near[0]]}? " if near else ""


def _refuse(path: str, fault: str, hint: str) -> NoReturn:
    raise InputError(f"{path} {fault}", hint=hint, parameter="programme")


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004 - fits a line


class _Parser:
    """Reads the fields of one layer."""

    def __init__(self, place: str, values: object) -> None:
        if not isinstance(values, Mapping):
            _refuse(place, f"is {_quoted(values)}", 'Give an object, {"ReinsNumber": 1, …}.')
        self._place = place
        self._values = {name: value for name, value in values.items() if value is not None}

    def layer(self) -> Layer:
        """Parse all of them."""
        kind = self._kind()
        self._check_names(kind)
        terms = {name: self._term(name) for name in TERMS}
        terms["PlacedPercent"] *= self._term("TreatyShare")
        self._check_payable(terms)
        self._check_units(kind)
        limit = "RiskLimit" if kind == "PR" and terms["OccLimit"] == math.inf else "OccLimit"
        charges = self._charges(limit, terms[limit])
        if charges is not None:
            terms["AggLimit"] = min(terms["AggLimit"], (len(charges) + 1) * terms[limit])
        perils = self._text("ReinsPeril", _MAX_LABELS)
        hours, cedant = self._hours()
        currency = self._text("ReinsCurrency", _MAX_LABEL)
        if currency and not re.fullmatch("[A-Z]{3}", currency):
            self._refuse("ReinsCurrency", f"is {_quoted(currency)}", "Give a code such as EUR.")
        layer = Layer(
            place=self._place,
            number=self._integer("ReinsNumber", None),
            name=self._text("ReinsName", _MAX_LABEL),
            kind=kind,
            priority=self._integer("InuringPriority", 1),
            perils=self._labels("ReinsPeril", perils.split(";")) if perils else (),
            scope=self._labels("Scope", self._values["Scope"]) if "Scope" in self._values else (),
            terms=terms,
            charges=charges or (),
            premium=self._term("ReinsPremium") if "ReinsPremium" in self._values else None,
            hours=hours,
            cedant=cedant,
            given={**self._values, **self._values.get("HoursClause", {})},
        )
        self._check_premium(layer)
        return layer

    def _refuse(self, name: str, fault: str, hint: str) -> NoReturn:
        _refuse(f"{self._place}.{name}", fault, hint)

    def _kind(self) -> str:
        kind = self._values.get("ReinsType", "missing")
        if not isinstance(kind, str) or kind not in KINDS:
            known = ", ".join(f"{name} ({row.title})" for name, row in KINDS.items())
            self._refuse("ReinsType", f"is {_quoted(kind)}", f"Use {known}.")
        return kind

    def _check_names(self, kind: str) -> None:
        row = KINDS[kind]
        for name in sorted(map(str, self._values)):
            if name in REFUSED:
                self._refuse(name, "is not supported", REFUSED[name])
            if name not in FIELDS:
                hint = f"{nearest(name, FIELDS)}Use {', '.join(FIELDS)}."
                self._refuse(name[:_MAX_LABEL], "is no field of a layer", hint)
            if name not in (*_EVERY.split(), *row.fields):
                hint = f"{kind} takes {', '.join(dict.fromkeys(row.fields))}."
                self._refuse(name, f"is no term of {row.title}", hint)
        needs = row.needs.split()
        if not any(name in self._values for name in needs):
            fault = f"is missing: {row.title} needs a term of its own"
            self._refuse(needs[0], fault, f"Give {' or '.join(needs)}.")

    def _number(self, name: str, value: object, most: float, hint: str) -> float:
        """A number from 0 on, no NaN."""
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= cast("float", value) <= most:
            self._refuse(name, f"is {_quoted(value)}", hint)
        return float(cast("float", value))

    def _term(self, name: str) -> float:
        default = TERMS.get(name, 1.0)
        if name not in self._values:
            return default
        if name in {"CededPercent", "PlacedPercent", "TreatyShare"}:
            hint = "Give a proportion of 0 to 1, such as 0.12 for 12 %."
            return self._number(name, self._values[name], 1.0, hint)
        low, none = ("above 0 and up", "no limit") if default == math.inf else ("of 0", "none")
        hint = f"Give an amount {low} to {MAX_AMOUNT:g}, or null for {none}."
        amount = self._number(name, self._values[name], MAX_AMOUNT, hint)
        if amount == 0 and default == math.inf:
            self._refuse(name, "is 0", hint)
        return amount

    def _integer(self, name: str, default: int | None) -> int:
        value = self._values.get(name, default)
        value = int(value) if isinstance(value, float) and value.is_integer() else value
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 1 << 31:
            fault = "is missing" if value is None else f"is {_quoted(value)}"
            self._refuse(name, fault, f"Give an integer from 1 to {(1 << 31) - 1}.")
        return value

    def _text(self, name: str, most: int) -> str:
        value = self._values.get(name, "")
        if not isinstance(value, str) or len(value) > most or not value.isprintable():
            self._refuse(name, f"is {_quoted(value)}", f"Give up to {most} printable characters.")
        return value

    def _labels(self, name: str, values: object) -> Sequence[str]:
        listed = values if isinstance(values, list) and len(values) <= _MAX_LABELS else [None]
        labels = [v.strip() for v in listed if isinstance(v, str) and 0 < len(v) <= _MAX_LABEL]
        if not listed or len(set(labels)) < len(listed) or "" in labels:
            hint = f"Give {'a list of ' * (name == 'Scope')}1 to {_MAX_LABELS} different labels."
            self._refuse(name, f"is {_quoted(values)}", hint)
        return () if name == "ReinsPeril" and ALL_PERILS in labels else labels

    def _charges(self, limit: str, amount: float) -> Sequence[float] | None:
        """The charge of each reinstatement; None if they are not limited."""
        count, field = self._values.get("Reinstatement"), "ReinstatementCharge"
        if count is None:
            if field in self._values:
                self._refuse(field, "is that of no number of reinstatements", "Give Reinstatement.")
            return None
        hint = f"Give an integer from 0 to {MAX_REINSTATEMENTS}, or null for no limit."
        self._number("Reinstatement", count, MAX_REINSTATEMENTS, hint)
        if not isinstance(count, int):
            self._refuse("Reinstatement", f"is {count}", hint)
        if amount == math.inf:
            self._refuse("Reinstatement", "is that of an unlimited layer", f"Give {limit}.")
        charges, paid = list(self._listed_charges(field)), "ReinsPremium" in self._values
        for wrong, fault, hint in (
            (count == 0 and charges, "is that of no reinstatement", "Leave it out."),
            (count and paid and not charges, "is missing", "Give 0 if reinstatements are free."),
            (len(charges) not in {0, 1, count}, f"has {len(charges)} charges",
             f"Give one, or each of the {count}."),
            (any(charges) and not paid, "is a proportion of no premium", "Give ReinsPremium."),
        ):  # fmt: skip
            if wrong:
                self._refuse(field, fault, hint)
        return charges if len(charges) == count else (charges or [0.0]) * count

    def _listed_charges(self, field: str) -> Iterator[float]:
        entry = self._values.get(field, [])
        hint = f"Give proportions of 0 to {MAX_CHARGE:g}, such as 1 for 100 %, or 0;0.5;1."
        values = entry if isinstance(entry, list) else [entry]
        if isinstance(entry, str):
            try:
                values = [float(text) for text in entry.split(";")]
            except ValueError:
                self._refuse(field, f"is {_quoted(entry)}", hint)
        for value in values:
            yield self._number(field, value, MAX_CHARGE, hint)

    def _check_payable(self, terms: Mapping[str, float]) -> None:
        reverse, field = terms["OccReverseFranchise"], "OccReverseFranchise"
        for name in ("OccAttachment", "OccFranchiseDed"):
            if reverse <= terms[name]:
                fault = f"is {reverse:g}, and {name} {terms[name]:g}: the layer would never pay"
                self._refuse(field, fault, f"Give more than {name}.")

    def _check_units(self, kind: str) -> None:
        """Refuse ratios, as of a loss to a premium, in place of amounts."""
        for name in _AGG.split() if kind == "SL" else ():
            if 0 < self._term(name) < 1:
                fault = f"is {self._values[name]}, and a stop loss has amounts, no ratios"
                hint = "Multiply it by the premium that it is a ratio to. If losses are in a unit"
                self._refuse(name, fault, f"{hint} as large as this, an AXL has the same terms.")

    def _check_premium(self, layer: Layer) -> None:
        """Refuse a rate on line in place of a premium."""
        premium, line = layer.premium or 0.0, layer.line
        if 0 < premium < min(1.0, line * _LEAST_RATE) and line < math.inf:
            fault = f"is {premium:g}, and the limit {line:g}"
            hint = f"Give an amount: a rate on line of {premium:g} is {premium * line:g}."
            self._refuse("ReinsPremium", fault, hint)

    def _hours(self) -> tuple[float, bool]:
        """Hours of the clause, and whether the cedant chooses its windows."""
        clause = self._values.get("HoursClause", {"Hours": 0})
        if not isinstance(clause, Mapping):
            hint = 'Give {"Hours": 72, "Start": "first-loss"}.'
            self._refuse("HoursClause", f"is {_quoted(clause)}", hint)
        for name in sorted(map(str, clause.keys() - {"Hours", "Start"})):
            path = f"HoursClause.{name[:_MAX_LABEL]}"
            self._refuse(path, "is no member of an hours clause", "Use Hours, Start.")
        hint = f"Give a number of hours, above 0 and up to {MAX_HOURS:g}."
        if "HoursClause" in self._values and not clause.get("Hours"):
            self._refuse("HoursClause.Hours", "is missing or 0", hint)
        start = clause.get("Start", "first-loss")
        if start not in ("first-loss", "cedant"):
            self._refuse("HoursClause.Start", f"is {_quoted(start)}", "Use first-loss or cedant.")
        return self._number(
            "HoursClause.Hours", clause["Hours"], MAX_HOURS, hint
        ), start == "cedant"
