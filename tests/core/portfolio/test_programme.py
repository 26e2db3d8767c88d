"""Programmes are read by the names of OED; whatever is wrong in one is refused at its place."""

from __future__ import annotations

import contextlib
import math
import re
from typing import Any

import pytest

from core.errors import InputError
from core.portfolio.programme import FIELDS, KINDS, REFUSED, TERMS, parse_programme

CXL = {"ReinsNumber": 1, "ReinsType": "CXL", "OccLimit": 10}
RENEWED = {**CXL, "Reinstatement": 2, "ReinsPremium": 5}
QS = {"ReinsNumber": 1, "ReinsType": "QS", "CededPercent": 0.3}


def test_what_is_left_out_or_null_restricts_nothing() -> None:
    nulls = dict.fromkeys(FIELDS)
    for given in (CXL, {**nulls, **CXL}):
        (layer,) = parse_programme({"layers": [given]}).layers
        assert (layer.place, layer.number, layer.name, layer.priority) == ("layers[0]", 1, "", 1)
        assert (layer.perils, layer.scope, layer.charges, layer.premium) == ((), (), (), None)
        assert layer.terms == {**TERMS, "OccLimit": 10}
        assert (layer.placed, layer.hours, layer.line) == (1, 0, 10)


@pytest.mark.parametrize(
    ("given", "charges"),
    [
        ("0;0.5", (0, 0.5)), ([0, 0.5], (0, 0.5)), (1, (1, 1)), ("1", (1, 1)),
    ],
)  # fmt: skip
def test_charges_are_one_for_all_or_one_for_each(given: object, charges: tuple[float, ...]) -> None:
    (layer,) = parse_programme({"layers": [{**RENEWED, "ReinstatementCharge": given}]}).layers
    assert tuple(layer.charges) == charges
    assert layer.terms["AggLimit"] == 30


def test_an_aggregate_limit_is_the_lower_one() -> None:
    given = [{**CXL, "ReinsNumber": k, "Reinstatement": 1, "AggLimit": 15 * k} for k in (1, 2)]
    assert [one.terms["AggLimit"] for one in parse_programme({"layers": given}).layers] == [15, 20]


def test_layers_are_in_order_of_priority_and_their_line_depends_on_their_type() -> None:
    given = [
        {"ReinsNumber": 1, "ReinsType": "SL", "AggLimit": 7, "InuringPriority": 3},
        {"ReinsNumber": 2, "ReinsType": "PR", "RiskLimit": 4, "InuringPriority": 2.0,
         "ReinsPeril": "WTC; XHL", "Reinstatement": 2},
        {"ReinsNumber": 5, "ReinsType": "PR", "RiskLimit": 4, "OccLimit": 9, "InuringPriority": 2},
        {"ReinsNumber": 3, "ReinsType": "AXL", "AggLimit": 6, "ReinsPeril": "WTC;AA1"},
        {**QS, "ReinsNumber": 4, "AggLimit": 8, "PlacedPercent": 0.5, "TreatyShare": 0.5},
        {"ReinsNumber": 6, "ReinsType": "PR", "RiskAttachment": 2, "AggLimit": 5},
        {"ReinsNumber": 7, "ReinsType": "FAC", "RiskAttachment": 2, "AggLimit": 3},
        {"ReinsNumber": 8, "ReinsType": "AXL", "AggLimit": 6, "OccLimit": 2},
        {"ReinsNumber": 9, "ReinsType": "AXL", "AggAttachment": 6, "OccLimit": 2},
    ]  # fmt: skip
    layers = parse_programme({"layers": given}).layers
    lines = {one.number: one.line for one in layers}
    assert [lines.pop(number) for number in (6, 7, 8, 9)] == [5, 3, 6, math.inf]
    layers = [one for one in layers if one.number in lines]
    assert [(one.number, one.line) for one in layers] == [(3, 6), (4, 8), (2, 4), (5, 9), (1, 7)]
    assert [list(one.perils) for one in layers] == [[], [], ["WTC", "XHL"], [], []]
    assert layers[1].placed == 0.25
    assert layers[2].terms["AggLimit"] == 12


def test_the_currency_is_that_of_all_layers() -> None:
    given = [{**CXL, "ReinsCurrency": "EUR"}, {**CXL, "ReinsNumber": 2}]
    assert parse_programme({"layers": given}).currency == "EUR"
    given[1]["ReinsCurrency"] = "USD"
    with pytest.raises(InputError, match=r"^layers have ReinsCurrency EUR and USD"):
        parse_programme({"layers": given})


NO_PROGRAMME: list[tuple[object, str]] = [
    ([], 'the programme is []. Give {"layers": [{…}, …]}.'),
    ({"layer": []}, "layer is no member of a programme. Its only member is layers."),
    ({}, "layers is no list. Give a list of 1 to 100 layers."),
    ({"layers": []}, "layers has 0 entries. Give a list of 1 to 100 layers."),
    ({"layers": [CXL] * 101}, "layers has 101 entries."),
    ({"layers": [7]}, 'layers[0] is 7. Give an object, {"ReinsNumber": 1, …}.'),
    ({"layers": [CXL, CXL]}, "layers[1].ReinsNumber is 1, as that of layers[0]. Give each layer"),
    (
        {"layers": [CXL, {**CXL, "InuringPriority": 2}]},
        "layers[1].ReinsNumber is 1, as that of layers[0]: with priorities 1 and 2 the layer",
    ),
]


@pytest.mark.parametrize(("given", "message"), NO_PROGRAMME)
def test_no_programme(given: object, message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(message)) as caught:
        parse_programme(given)
    assert caught.value.parameter == "programme"


LAYERS: list[tuple[dict[str, Any], str]] = [
    ({"ReinsNumber": 1}, "ReinsType is 'missing'. Use FAC (a facultative cover), QS"),
    ({**CXL, "ReinsType": "XL"}, "ReinsType is 'XL'. Use FAC"),
    ({**CXL, "ReinsType": ["CXL"]}, "ReinsType is ['CXL']."),
    ({**CXL, "occlimt": 1}, "occlimt is no field of a layer. Did you mean OccLimit? Use"),
    ({**CXL, "Xyzzy": 1}, "Xyzzy is no field of a layer. Use "),
    ({**CXL, "AggPeriod": 365}, "AggPeriod is not supported. Aggregate terms are those of a"),
    ({**CXL, "LOB": "1"}, "LOB is not supported. Say with Scope which parts of the subject it"),
    ({**CXL, "RiskLimit": 1}, "RiskLimit is no term of a catastrophe excess of loss. CXL takes"),
    ({**QS, "OccAttachment": 1}, "OccAttachment is no term of a quota share."),
    ({**QS, "Reinstatement": 1}, "Reinstatement is no term of a quota share."),
    ({"ReinsNumber": 1, "ReinsType": "CXL"},
     "OccAttachment is missing: a catastrophe excess of loss needs a term of its own. Give OccA"),
    ({"ReinsNumber": 1, "ReinsType": "AXL", "OccLimit": 9},
     "AggAttachment is missing: an aggregate excess of loss needs a term of its own. Give Agg"),
    ({"ReinsNumber": 1, "ReinsType": "QS"}, "CededPercent is missing: a quota share needs"),
    ({**CXL, "ReinsNumber": None}, "ReinsNumber is missing. Give an integer from 1 to"),
    ({**CXL, "ReinsNumber": 0}, "ReinsNumber is 0."),
    ({**CXL, "ReinsNumber": True}, "ReinsNumber is True."),
    ({**CXL, "ReinsNumber": 1.5}, "ReinsNumber is 1.5."),
    ({**CXL, "ReinsNumber": 1 << 31}, "ReinsNumber is 2147483648."),
    ({**CXL, "InuringPriority": -1}, "InuringPriority is -1."),
    ({**CXL, "OccLimit": -5}, "OccLimit is -5. Give an amount above 0 and up to 1e+18, or null"),
    ({**CXL, "OccLimit": 0}, "OccLimit is 0. Give an amount above 0 and up to 1e+18, or null"),
    ({**CXL, "OccLimit": math.nan}, "OccLimit is nan. Give an amount"),
    ({**CXL, "OccLimit": math.inf}, "OccLimit is inf. Give an amount"),
    ({**CXL, "OccLimit": 10**400}, "OccLimit is 1000"),
    ({**CXL, "OccLimit": "10m"}, "OccLimit is '10m'."),
    ({**CXL, "OccLimit": True}, "OccLimit is True."),
    ({**CXL, "OccAttachment": -1}, "OccAttachment is -1. Give an amount of 0 to 1e+18, or"),
    ({**CXL, "PlacedPercent": 12}, "PlacedPercent is 12. Give a proportion of 0 to 1, such as"),
    ({**CXL, "TreatyShare": math.nan}, "TreatyShare is nan."),
    ({**CXL, "ReinsCurrency": "eur"}, "ReinsCurrency is 'eur'. Give a code such as EUR."),
    ({"ReinsNumber": 1, "ReinsType": "SL", "AggAttachment": 80, "AggLimit": 0.5},
     "AggLimit is 0.5, and a stop loss has amounts, no ratios. Multiply it by the premium that"),
    ({**CXL, "OccLimit": 1e6, "ReinsPremium": 0.15},
     "ReinsPremium is 0.15, and the limit 1e+06. Give an amount: a rate on line of 0.15 is 150000"),
    ({**CXL, "ReinsName": 5}, "ReinsName is 5. Give up to 200 printable characters."),
    ({**CXL, "ReinsName": "a\nb"}, "ReinsName is 'a\\nb'."),
    ({**CXL, "ReinsPeril": "WTC;;XHL"}, "ReinsPeril is ['WTC', '', 'XHL']. Give 1 to"),
    ({**CXL, "ReinsPeril": ["WTC"]}, "ReinsPeril is ['WTC']. Give up to"),
    ({**CXL, "Scope": "north"}, "Scope is 'north'. Give a list of 1 to 10000 different labels."),
    ({**CXL, "Scope": []}, "Scope is []."),
    ({**CXL, "Scope": ["a", "a"]}, "Scope is ['a', 'a']."),
    ({**CXL, "Scope": [{}]}, "Scope is [{}]."),
    ({**RENEWED, "OccLimit": None, "OccAttachment": 1},
     "Reinstatement is that of an unlimited layer. Give OccLimit."),
    ({"ReinsNumber": 1, "ReinsType": "PR", "RiskAttachment": 5, "Reinstatement": 1},
     "Reinstatement is that of an unlimited layer. Give RiskLimit."),
    ({**CXL, "Reinstatement": -1}, "Reinstatement is -1. Give an integer from 0 to 1000, or null"),
    ({**CXL, "Reinstatement": 0.5}, "Reinstatement is 0.5. Give an integer"),
    ({**CXL, "Reinstatement": True}, "Reinstatement is True. Give an integer"),
    ({**CXL, "ReinstatementCharge": 1}, "ReinstatementCharge is that of no number of re"),
    ({**CXL, "Reinstatement": 0, "ReinstatementCharge": 1, "ReinsPremium": 1},
     "ReinstatementCharge is that of no reinstatement. Leave it out."),
    (RENEWED, "ReinstatementCharge is missing. Give 0 if reinstatements are free."),
    ({**RENEWED, "ReinstatementCharge": "0;1;1"}, "ReinstatementCharge has 3 charges. Give one"),
    ({**RENEWED, "ReinstatementCharge": "free"}, "ReinstatementCharge is 'free'. Give proportions"),
    ({**RENEWED, "ReinstatementCharge": "nan"}, "ReinstatementCharge is nan."),
    ({**RENEWED, "ReinstatementCharge": 100}, "ReinstatementCharge is 100. Give proportions of 0"),
    ({**RENEWED, "ReinstatementCharge": [1, None]}, "ReinstatementCharge is None."),
    ({**RENEWED, "ReinsPremium": None, "ReinstatementCharge": 1},
     "ReinstatementCharge is a proportion of no premium. Give ReinsPremium."),
    ({**CXL, "OccAttachment": 9, "OccReverseFranchise": 9},
     "OccReverseFranchise is 9, and OccAttachment 9: the layer would never pay. Give more than"),
    ({**CXL, "OccFranchiseDed": 9, "OccReverseFranchise": 8},
     "OccReverseFranchise is 8, and OccFranchiseDed 9: the layer would never pay."),
    ({**CXL, "HoursClause": 72}, 'HoursClause is 72. Give {"Hours": 72, "Start": "first-loss"}.'),
    ({**CXL, "HoursClause": {}}, "HoursClause.Hours is missing or 0."),
    ({**CXL, "HoursClause": {"Start": "cedant"}}, "HoursClause.Hours is missing or 0. Give"),
    ({**CXL, "HoursClause": {"Hours": 0}}, "HoursClause.Hours is missing or 0."),
    ({**CXL, "HoursClause": {"Hours": math.nan}}, "HoursClause.Hours is nan."),
    ({**CXL, "HoursClause": {"Hours": 72, "Start": "any"}},
     "HoursClause.Start is 'any'. Use first-loss or cedant."),
    ({**CXL, "HoursClause": {"Hours": 72, "Length": 1}},
     "HoursClause.Length is no member of an hours clause. Use Hours, Start."),
]  # fmt: skip


@pytest.mark.parametrize(("given", "message"), LAYERS)
def test_no_layer(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match="^" + re.escape(f"layers[1].{message}")):
        parse_programme({"layers": [{**QS, "ReinsNumber": 9}, given]})


def test_each_type_takes_what_it_needs_alone() -> None:
    for name, kind in KINDS.items():
        for field in kind.needs.split():
            layer = {"ReinsNumber": 1, "ReinsType": name, field: 1 if name == "SL" else 0.5}
            assert len(parse_programme({"layers": [layer]}).layers) == 1


def test_every_field_of_oed_is_used_or_refused_for_a_reason() -> None:
    used = {
        "ReinsNumber",
        "ReinsName",
        "ReinsPeril",
        "CededPercent",
        "RiskLimit",
    }
    used |= {"RiskAttachment", "OccLimit", "OccAttachment", "OccFranchiseDed", "PlacedPercent"}
    used |= {"OccReverseFranchise", "AggLimit", "AggAttachment", "ReinsCurrency", "ReinsType"}
    used |= {"InuringPriority", "Reinstatement", "ReinstatementCharge"}
    used |= {"ReinsPremium", "TreatyShare"}
    assert set(FIELDS) == used | {"Scope", "HoursClause"}
    assert not used & set(REFUSED)
    for field, reason in REFUSED.items():
        with pytest.raises(
            InputError, match=re.escape(f"layers[0].{field} is not supported. {reason}")
        ):
            parse_programme({"layers": [{**CXL, field: 1}]})


JUNK = [
    [], {}, [[]], [{}], "", ";", "x" * 20_000, True, -1, 0, 0.5, 1, 1e308, 10**400, -math.inf,
    math.nan, {"Hours": []}, {"Hours": {}}, {"Hours": "72"}, {"Hours": 72, "Start": []},
    ["a", 1], "\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", FIELDS)
def test_no_value_is_too_odd_to_be_refused(name: str) -> None:
    whole = {**RENEWED, "ReinstatementCharge": 1, "HoursClause": {"Hours": 72}}
    for kind in KINDS:
        for value in JUNK:
            with contextlib.suppress(InputError):
                parse_programme({"layers": [{**whole, "ReinsType": kind, name: value}]})
            with contextlib.suppress(InputError):
                parse_programme({"layers": [{"ReinsNumber": 1, "ReinsType": kind, name: value}]})
