"""A backend of `torch.distributed` for tensors on CPUs: ``dist.init_process_group("ripieno")``.

After ``import ripieno.torch`` the ranks of a job, or those that `ripieno run` or another launcher has started, are
those of the process group, and nothing else is to be said. `DistributedDataParallel`, FSDP2, device meshes, DTensor and
checkpoints call it as they call Gloo.
"""

from ripieno.torch.meeting import register

__all__ = ["register"]

register()
