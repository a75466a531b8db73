"""Provide an emulated cluster on one Linux machine: racks of hosts with slow network links, which can also fail.

A host is a network namespace. Its network link leads to the switch of its rack, a bridge, and every rack has one uplink
to a core bridge. Both directions of every network link and uplink are rate-limited. The switches have a separate
namespace, so the machine's own interfaces, routes and firewall are unchanged. The file system is shared.

from ripieno.lab import Lab

with Lab(racks=2, hosts=4, rate="100mbit", uplink="200mbit") as lab:
    code = lab.run([sys.executable, "program.py"])

It needs Linux, root, iproute2, and the kernel modules veth, bridge and sch_tbf.
"""

from ripieno.lab.cluster_spec import ClusterSpec, LabHost
from ripieno.lab.kernel import missing_requirement
from ripieno.lab.lab import Lab
from ripieno.lab.links import Counters

#: Former name of `ClusterSpec`.
Blueprint = ClusterSpec
#: Former name of `LabHost`.
Host = LabHost
#: Former name of `missing_requirement`.
why_not = missing_requirement

__all__ = ["ClusterSpec", "Counters", "Lab", "LabHost", "missing_requirement"]
