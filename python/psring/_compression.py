"""What the compressions of all frameworks have in common."""

from typing import Any


def check_compression(compression: Any, none: Any) -> Any:
    """What a collective was given; None is `none`. Errors: it is no compression."""
    if compression is None:
        return none
    if not hasattr(compression, "compress") or not hasattr(compression, "decompress"):
        raise TypeError(
            f"compression={compression!r}: it is Compression.none, .fp16 or .bf16, or a class with their compress() "
            "and decompress()"
        )
    return compression
