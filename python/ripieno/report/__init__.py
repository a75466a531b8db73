"""Reports of one fit, and comparisons of several fits: self-contained HTML files that load nothing."""

from ripieno.report.compared import write_comparison
from ripieno.report.notebook import framed, page_of
from ripieno.report.page import write_fit_report, write_report
from ripieno.report.result import PageChart

#: The former name of `PageChart`.
Charted = PageChart

__all__ = ["Charted", "PageChart", "framed", "page_of", "write_comparison", "write_fit_report", "write_report"]
