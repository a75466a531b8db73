"""Cluster the patches of photographs: extract vectors from pictures, cluster them, and write a report.

The photographs come with scikit-learn and scikit-image. The same with the library instead of the command:

    import ripieno as rp
    from ripieno.features import HogOptions, demo_images, extract

    extract(demo_images(), "vectors.npy", options=HogOptions(stride=16), workers=2)
    model = rp.KMeans(n_clusters=64, workers=2, random_state=0).fit("vectors.npy")
"""

import sys

from ripieno.cli import main

if __name__ == "__main__":
    sys.exit(main(["demo", *sys.argv[1:]]))
