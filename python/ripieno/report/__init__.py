"""The report of a fit, and of several beside each other: one HTML file that holds everything and fetches nothing."""

from ripieno.report.compared import write_comparison
from ripieno.report.notebook import framed, page_of
from ripieno.report.page import Charted, write_fit_report, write_report

__all__ = ["Charted", "framed", "page_of", "write_comparison", "write_fit_report", "write_report"]
