"""Summary sets of item streams: as streams of summaries, and as reports of each set.

:class:`Summariser` turns one stream of items into streams of summaries; the others use it for
all partitions of a run. :class:`SetReports` computes reports in the same pass.
"""

from .item_partitions import ItemPartitions as ItemPartitions
from .item_partitions import JoinedSummaries as JoinedSummaries
from .item_partitions import Reading as Reading
from .item_partitions import SectionedSummaries as SectionedSummaries
from .item_partitions import SummarisedSection as SummarisedSection
from .set_reports import MakeAnalysis as MakeAnalysis
from .set_reports import SetReports as SetReports
from .set_reports import SetSink as SetSink
from .set_reports import set_policy as set_policy
from .sets import SummarySets as SummarySets
from .summariser import INDEX as INDEX
from .summariser import IndexSink as IndexSink
from .summariser import StreamSink as StreamSink
from .summariser import Summariser as Summariser
