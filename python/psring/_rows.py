"""How a tensor's rows, along dimension 0, are shared out among ranks."""

from typing import Any, List, Sequence

from .process_sets import whole


def tag(dtype: str, shape: Sequence[int]) -> str:
    """By which ranks compare their rows: all but the number of them."""
    return f"{dtype}[*{''.join(f',{extent}' for extent in shape[1:])}]"


def shared_out(rows: int, ranks: int) -> List[int]:
    """Evenly; the first ranks get one more where that leaves some."""
    return [rows // ranks + (rank < rows % ranks) for rank in range(ranks)]


def cuts(what: str, rows: int, splits: Any, ranks: int) -> List[int]:
    """The rows of each rank, by `splits`; None: the same number. Errors name `what`, the call."""
    if splits is None:
        if rows % ranks:
            raise ValueError(f"{what} of {rows} rows among {ranks} ranks: give splits")
        return [rows // ranks] * ranks
    try:
        counts = [whole(count) for count in (splits.tolist() if hasattr(splits, "tolist") else splits)]
    except (TypeError, ValueError):
        raise TypeError(f"{what}: splits={splits!r}: it takes one whole number for each of {ranks} ranks") from None
    if len(counts) != ranks or min(counts) < 0 or sum(counts) != rows:
        raise ValueError(f"{what}: splits={counts} do not cut {rows} rows for {ranks} ranks")
    return counts
