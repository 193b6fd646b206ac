"""A solution as a report: one page that opens offline, its charts as files, and a trace of one step."""

from __future__ import annotations

from planner.report.data import ReportData, report_data
from planner.report.page import page

__all__ = ["ReportData", "page", "report_data"]
