"""The dashboard of jobs: a web page that the launching process serves while programs run."""

from ripieno.dashboard.dashboard import Dashboard, current, shared_dashboard

__all__ = ["Dashboard", "current", "shared_dashboard"]
