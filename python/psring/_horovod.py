"""Horovod's names that mean the same in all frameworks, and those that have no place here."""

from typing import Any, Callable, Dict

from . import _lib


def refuser(module: str, instead: Dict[str, str]) -> Callable[[str], Any]:
    """A module's __getattr__. `instead`: what there is in place of a name."""

    def refuse(name: str) -> Any:
        if name in instead:
            raise AttributeError(f"{module} has no {name}: {instead[name]}")
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return refuse


# ---- What it was built with. psring has one transport, its own. --------------


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
