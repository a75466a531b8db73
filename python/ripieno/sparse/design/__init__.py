"""Design sparse reductions: choose degrees for given data, ranks and links, and predict their costs.

Source: Zhao and Canny, "Kylix: a sparse allreduce for commodity clusters", ICPP 2014, section IV.
"""

from ripieno.sparse.design.explain import DataDistribution, DesignComparison, explain, price, volumes
from ripieno.sparse.design.live import LiveExplanation, explain_configured

__all__ = [
    "DataDistribution",
    "DesignComparison",
    "LiveExplanation",
    "explain",
    "explain_configured",
    "price",
    "volumes",
]
