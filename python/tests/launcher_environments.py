"""Recorded environments of ranks: Open MPI 4.1.4, MPICH 4.0.2, Slurm 22.05 and torchrun 1.13.

Variables with paths and addresses are left out.
"""

#: RIPIENO_TOKEN of the tests, as long as a random one.
TOKEN = "0123456789abcdef" * 4

# mpirun --oversubscribe -n 4, on 2 cores
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "OMPI_MCA_orte_precondition_transports": "94f065459c966255-8645310380e24304",
    "PMIX_NAMESPACE": "1440940033",
    "PMIX_RANK": "1",
}

# mpirun -n 2, each rank bound to a core
OPEN_MPI_BOUND = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "OMPI_MCA_orte_precondition_transports": "7c81a6bcf9a25793-ad22384336960a36",
    "OMPI_MCA_orte_bound_at_launch": "1",
    "PMIX_NAMESPACE": "1415512065",
    "PMIX_RANK": "1",
}

# mpirun -n 2 in a batch script with 2 nodes
OPEN_MPI_IN_SLURM = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "OMPI_MCA_orte_precondition_transports": "16ef711450b33fea-34ec62c83ea94d0b",
    "OMPI_MCA_orte_bound_at_launch": "1",
    "PMIX_NAMESPACE": "747372545",
    "PMIX_RANK": "1",
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "1",
    "SLURM_JOB_ID": "23",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "1",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "ENVIRONMENT": "BATCH",
}

# mpiexec.hydra -n 3
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "3", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "3"}

# mpiexec.hydra -n 2 in a batch script with 2 nodes
HYDRA_IN_SLURM = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "MPI_LOCALRANKID": "0",
    "MPI_LOCALNRANKS": "1",
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "23",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "2",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "ENVIRONMENT": "BATCH",
}

# srun -n 3, on 2 nodes
STEP = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_GTIDS": "2",
    "SLURM_JOB_ID": "16",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NPROCS": "3",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "2",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_TASKS_PER_NODE": "2,1",
    "SLURM_TASKS_PER_NODE": "2,1",
}

# srun -n 2 in a batch script of 3 tasks
STEP_OF_BATCH = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "1",
    "SLURM_JOB_ID": "23",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "1",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n[1-2]",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
    "SLURM_TASKS_PER_NODE": "1(x2)",
    "ENVIRONMENT": "BATCH",
}

# srun -n 1
STEP_OF_ONE = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "19",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1",
}

# srun --mpi=pmi2 -n 2
STEP_WITH_PMI2 = {
    "PMI_RANK": "1",
    "PMI_SIZE": "2",
    "PMI_JOBID": "17.0",
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "0,1",
    "SLURM_JOB_ID": "17",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_TASKS_PER_NODE": "2",
}

# srun --mpi=pmix -n 2
STEP_WITH_PMIX = {
    "PMIX_NAMESPACE": "slurm.pmix.18.0",
    "PMIX_RANK": "1",
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "2",
    "SLURM_GTIDS": "0,1",
    "SLURM_JOB_ID": "18",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "2",
    "SLURM_NTASKS": "2",
    "SLURM_PROCID": "1",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_TASKS_PER_NODE": "2",
}

# The script of sbatch -n 3
BATCH = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "23",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "3",
    "SLURM_NTASKS": "3",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "1,2",
    "ENVIRONMENT": "BATCH",
}

# The script of an sbatch -n 1 called inside a step of 2 tasks
BATCH_FROM_STEP = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "22",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "2",
    "SLURM_TASKS_PER_NODE": "1",
    "ENVIRONMENT": "BATCH",
}

# torchrun --nproc-per-node 2
TORCHRUN = {
    "RANK": "0",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "0",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29411",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}

# torchrun --standalone --nproc-per-node 2
TORCHRUN_STANDALONE = {
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "localhost",
    "MASTER_PORT": "44569",
    "TORCHELASTIC_RUN_ID": "954928c8-af9c-45a6-be48-ce862c47e61d",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "False",
}

# srun -n 1 torchrun --nproc-per-node 2
TORCHRUN_IN_STEP = {
    "SLURM_CLUSTER_NAME": "cluster",
    "SLURM_CPUS_ON_NODE": "1",
    "SLURM_GTIDS": "0",
    "SLURM_JOB_ID": "20",
    "SLURM_LAUNCH_NODE_IPADDR": "127.0.0.1",
    "SLURM_LOCALID": "0",
    "SLURM_NODEID": "0",
    "SLURM_NPROCS": "1",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "n1",
    "SLURM_STEP_NUM_TASKS": "1",
    "SLURM_STEP_TASKS_PER_NODE": "1",
    "SLURM_TASKS_PER_NODE": "1",
    "RANK": "1",
    "WORLD_SIZE": "2",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "127.0.0.1",
    "MASTER_PORT": "29412",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_USE_AGENT_STORE": "True",
}
