"""What Horovod was built with, under its names. psring has one transport, its own."""

from . import _lib


def mpi_built() -> bool:
    """False: psring needs no MPI (but mpirun starts it)."""
    return False


def mpi_enabled() -> bool:
    return False


def mpi_threads_supported() -> bool:
    """True: collectives may be called from any thread."""
    return True


def gloo_built() -> bool:
    """True: what a script does with Gloo, it can do here."""
    return True


def gloo_enabled() -> bool:
    return True


def nccl_built() -> int:
    """1: in mode ring NCCL sums gradients on GPUs where every rank has it. 0: tensors on
    GPUs are copied through the host."""
    return int(cuda_built())


def cuda_built() -> bool:
    """Whether libpsring.so was built with CUDA, so that gradients on GPUs are exchanged
    from where they lie."""
    return _lib.cuda_built()


def rocm_built() -> bool:
    return False


def ccl_built() -> bool:
    return False


def ddl_built() -> bool:
    return False
