"""The dashboard of jobs: a web page that the launching process serves while programs run."""

from ripieno.dashboard.dashboard import Dashboard, current, wanted

__all__ = ["Dashboard", "current", "wanted"]
