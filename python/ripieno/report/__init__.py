"""The report of a fit: one HTML file that holds everything and fetches nothing."""

from ripieno.report.page import Charted, write_fit_report, write_report

__all__ = ["Charted", "write_fit_report", "write_report"]
