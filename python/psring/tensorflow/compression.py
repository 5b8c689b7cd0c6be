"""What travels instead of a tensor of float32 or float64; the sum is still made in float32."""

from typing import Any, Optional, Tuple, Type

import tensorflow as tf

from .._compression import check_compression


class Compressor:
    """compress() returns a tensor and what decompress() needs to undo it."""

    _dtype: Optional[tf.DType] = None

    @classmethod
    def compress(cls, tensor: Any) -> Tuple[Any, Any]:
        if cls._dtype is None or tensor.dtype not in (tf.float32, tf.float64):
            return tensor, None
        return tf.cast(tensor, cls._dtype), tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tf.cast(tensor, ctx)


class NoneCompressor(Compressor):
    """The tensor as it is."""


class FP16Compressor(Compressor):
    """Half precision: 2 bytes, 11 bits of precision, at most 65504."""

    _dtype = tf.float16


class BF16Compressor(Compressor):
    """bfloat16: 2 bytes, float32's range, 8 bits of precision."""

    _dtype = tf.bfloat16


class Compression:
    """`compression=` of the reductions and of DistributedGradientTape."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def compressor(compression: Any) -> Type[Compressor]:
    """What a call was given; None is none."""
    return check_compression(compression, NoneCompressor)  # type: ignore[no-any-return]
