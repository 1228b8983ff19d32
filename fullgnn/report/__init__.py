"""What a person sees: the progress line, the closing table, the table of a sweep."""

from fullgnn.report.progress import Progress
from fullgnn.report.summary import closing_table, make_record
from fullgnn.report.table import format_table

__all__ = ["Progress", "closing_table", "format_table", "make_record"]
