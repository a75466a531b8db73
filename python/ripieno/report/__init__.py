"""The report of a fit: one HTML file that holds everything and fetches nothing."""

from ripieno.report.page import write_report

__all__ = ["write_report"]
