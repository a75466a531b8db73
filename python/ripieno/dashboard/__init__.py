"""The dashboard of jobs: a page that the launching process serves while their programs run."""

from ripieno.dashboard.dashboard import Dashboard, current, wanted

__all__ = ["Dashboard", "current", "wanted"]
