"""What a person sees: the progress line, the closing table, the table of a sweep, the page of some runs."""

from fullgnn.report.events import EventFiles
from fullgnn.report.progress import Progress
from fullgnn.report.summary import closing_table, make_record
from fullgnn.report.table import format_table

__all__ = ["EventFiles", "Progress", "closing_table", "format_table", "make_record"]
