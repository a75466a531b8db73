"""A backend of `torch.distributed` for tensors on CPUs: ``dist.init_process_group("ripieno")``.

After ``import ripieno.torch`` the ranks of a job, or the ranks that `ripieno run` or another launcher has started, form
the process group without further options. `DistributedDataParallel`, FSDP2, device meshes, DTensor and checkpoints use
it like Gloo.
"""

from ripieno.torch.rendezvous import register

__all__ = ["register"]

register()
