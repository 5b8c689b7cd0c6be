"""What travels instead of a float32 tensor.

In allreduce() and allgather() a compression converts the tensor before, and back
afterwards; the sum is still made in float32. For DistributedOptimizer it names
the model's own `compress` of the same name, which also returns to the next step
what rounding has lost (error feedback).
"""

from typing import Any, Optional, Tuple, Type

import torch

from .._compression import check_compression


class Compressor:
    """compress() returns a tensor and what decompress() needs to undo it."""

    # The name of the library's own, for gradients.
    native: Optional[str] = None
    _dtype: Optional[torch.dtype] = None

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> Tuple[torch.Tensor, Any]:
        if cls._dtype is None or tensor.dtype not in (torch.float32, torch.float64):
            return tensor, None
        return tensor.to(cls._dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor if ctx is None else tensor.to(ctx)


class NoneCompressor(Compressor):
    """The tensor as it is."""

    native = "none"


class FP16Compressor(Compressor):
    """Half precision: 2 bytes, 11 bits of precision, at most 65504."""

    native = "fp16"
    _dtype = torch.float16


class BF16Compressor(Compressor):
    """bfloat16: 2 bytes, float32's range, 8 bits of precision."""

    native = "bf16"
    _dtype = torch.bfloat16


class Compression:
    """`compression=` of the collectives and of DistributedOptimizer."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def compressor(compression: Any) -> Type[Compressor]:
    """What a collective was given; None is none."""
    return check_compression(compression, NoneCompressor)  # type: ignore[no-any-return]


def native_name(compression: Type[Compressor]) -> str:
    """The library's `compress` for a compression. Errors: one of the user's own."""
    name = getattr(compression, "native", None)
    if name is None:
        raise ValueError(
            f"compression={compression!r}: DistributedOptimizer takes Compression.none, .fp16 "
            'and .bf16; compress="int8", "onebit" and "topk:F" are others of psring\'s own'
        )
    return name
