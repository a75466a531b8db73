"""The report of a fit: one HTML file that holds everything and fetches nothing."""

from ripieno.report.page import Patches, write_report

__all__ = ["Patches", "write_report"]
