"""Auxiliary inputs of reports, by the files of the peer.

Each is read from csv or from the packed records the peer's ``csvtobin`` writes,
told apart by content. Bytes come in and arrays go out; what cannot be used is an
``InputError`` that names the line of a csv, or the byte of a packed file.
"""

from .occurrence import EventIndex as EventIndex
from .occurrence import EventRates as EventRates
from .occurrence import Occurrence as Occurrence
from .occurrence import Periods as Periods
from .occurrence import calendar_dates as calendar_dates
from .occurrence import day_ids as day_ids
from .occurrence import encode_event_rates as encode_event_rates
from .occurrence import encode_occurrence as encode_occurrence
from .occurrence import encode_periods as encode_periods
from .occurrence import parse_event_rates as parse_event_rates
from .occurrence import parse_occurrence as parse_occurrence
from .occurrence import parse_periods as parse_periods
from .points import ReturnPeriods as ReturnPeriods
from .points import encode_quantiles as encode_quantiles
from .points import encode_return_periods as encode_return_periods
from .points import parse_quantiles as parse_quantiles
from .points import parse_return_periods as parse_return_periods
from .points import quantiles_from_text as quantiles_from_text
from .points import return_periods_from_text as return_periods_from_text
from .rows import Columns as Columns
from .rows import Data as Data
from .rows import Form as Form
from .summary_xref import SummaryXref as SummaryXref
from .summary_xref import encode_summary_xref as encode_summary_xref
from .summary_xref import parse_summary_xref as parse_summary_xref
from .text_tables import SummaryInfo as SummaryInfo
from .text_tables import SummaryMap as SummaryMap
from .text_tables import csv_line as csv_line
from .text_tables import encode_summary_info as encode_summary_info
from .text_tables import encode_summary_map as encode_summary_map
from .text_tables import number_of as number_of
from .text_tables import parse_summary_info as parse_summary_info
from .text_tables import parse_summary_map as parse_summary_map
