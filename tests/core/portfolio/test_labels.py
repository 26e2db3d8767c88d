"""What labels of dimensions tell, and what of them looks wrong."""

from __future__ import annotations

import numpy as np
import pytest

from core.errors import InputError
from core.portfolio.importing import import_table
from core.portfolio.tables import Given


@pytest.mark.parametrize(
    ("form", "text", "expected"),
    [
        ("ylt", "Period,Loss,CURRENCY,LOB\n1,2,EUR,a\n1,3,EUR ,b\n", "EUR"),
        ("splt", "Period,EventId,SummaryId,SampleId,Loss,ccy\n1,1,1,1,5,USD\n", "USD"),
        ("ylt", "Period,Loss,AccCurrency,LocCurrency\n1,2,,GBP\n", "GBP"),
        ("ylt", "Period,Loss,OriginalCurrency\n1,2,EUR\n1,3,USD\n", None),
        ("ylt", "Period,Loss,ReinsCurrency\n1,2,EUR\n1,3,USD\n", "line 3: .*'USD' is not 'EUR'"),
        ("ylt", "Period,Loss,Loc_Currency\n1,2,eur\n", "line 2: .*'eur' is no currency"),
    ],
)
def test_a_table_is_in_the_currency_of_its_column(
    form: str, text: str, expected: str | None
) -> None:
    if expected is not None and len(expected) > 3:
        with pytest.raises(InputError, match=expected):
            import_table(form, text.encode(), Given(periods=1))
        return
    made = import_table(form, text.encode(), Given(periods=1))
    assert made.currency == expected
    if made.dimensions is not None:
        assert len(made.dimensions.columns) == 1


def test_columns_that_may_be_amounts_are_told() -> None:
    text = "Period,Loss,NetLoss,TIV,Share,Zip\n1,2,4,100,0.5,17\n2,3,2,100,1,n/a\n"
    notes = import_table("ylt", text.encode(), Given(periods=2)).notes
    assert [note.split()[0] for note in notes] == ["NetLoss", "Share"]
    assert "losses are grouped by its values, which are not added" in notes[0]


def test_labels_that_are_one_number_are_told_and_whole_numbers_are_written_as_such() -> None:
    text = "Period,EventId,Loss,Zip\n1,1,2,10\n1,2,2,1e1\n1,3,2,010\n1,4,2,1.5\n"
    notes = import_table("ylt", text.encode(), Given(periods=1)).notes
    assert "Zip has '10' and '1e1', which are groups apart" in notes
    columns = {"Period": np.arange(1, 5), "Loss": np.ones(4), "Zip": np.array([1.0, -2, 0.5, 1e16])}
    made = import_table("ylt", columns, Given(periods=4))
    assert made.dimensions is not None
    assert made.dimensions.columns["Zip"].tolist() == ["1", "-2", "0.5", "1e+16"]


def test_labels_have_no_blanks_at_their_ends_and_what_looks_wrong_is_told() -> None:
    text = "Period,EventId,Loss,Region,index\n1,1,2,N,0\n1,2,2,N ,1\n1,3,2,n,2\n1,4,2,,3\n"
    made = import_table("ylt", text.encode(), Given(periods=1))
    assert made.dimensions is not None
    assert made.dimensions.columns["Region"].tolist() == ["N", "N", "n", ""]
    index, case, empty = made.notes
    assert index.startswith("index has another number in each row")
    assert case == "Region has 'N' and 'n', which are groups apart"
    assert empty == "Region is empty in 1 of 4 summaries"
    with pytest.raises(InputError, match=r"line 3: .* is already in line 2"):
        import_table("ylt", b"Period,Loss,Region\n1,2,N\n1,2,N \n", Given(periods=1))
