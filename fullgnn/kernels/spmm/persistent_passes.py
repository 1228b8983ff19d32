"""How ``persistent.py`` and its kernel cut columns into passes, and rows into lanes: functions of the tuning alone."""

from dataclasses import dataclass

from fullgnn.kernels.spmm.reading import MIN_PIECE
from fullgnn.kernels.spmm.triton_csr import power_of_two
from fullgnn.kernels.support.tuning import PersistentTuning

REGISTERS = 1 << 16  # registers of a multiprocessor


@dataclass(frozen=True)
class Passes:
    """Columns that one launch multiplies: ``count`` times one piece, or three equal ones."""

    first: int
    count: int
    piece: int  # a power of two
    three: bool

    @property
    def total(self) -> int:
        """Columns of one pass."""
        return 3 * self.piece if self.three else self.piece

    @property
    def end(self) -> int:
        return self.first + self.count * self.total


def split_passes(width: int, columns_a_pass: int, whole: bool = False) -> list[Passes]:
    """Launches for ``width`` columns: as many full passes as possible, then the rest.

    Args:
        whole: use one piece, never three: of a narrow one in a 16-bit type a thread would read less than 16 bytes.
    """
    full, rest = divmod(width, columns_a_pass)
    cuts = []
    for first, count, columns in ((0, full, columns_a_pass), (full * columns_a_pass, 1, rest)):
        if count and columns:
            piece = max(MIN_PIECE, 1 << (columns - 1).bit_length())
            three = not whole and columns <= piece // 4 * 3 and piece >= 4 * MIN_PIECE
            cuts.append(Passes(first, count, piece // 4 if three else piece, three))
    return cuts


def lanes_of(tuning: PersistentTuning, num_columns: int) -> dict[str, int]:
    """Lanes of a program with sums of ``num_columns`` columns, and of an item of each kind: powers of two."""
    lanes = min(tuning.max_lanes, max(tuning.min_lanes, power_of_two(tuning.elements // num_columns)))
    return {"LANES": lanes, "SHORT": min(lanes, tuning.short_lanes)}


def programs_a_processor(tuning: PersistentTuning, double: bool) -> int:
    """Programs at one time on a multiprocessor; half as many in float64, where sums take twice the registers."""
    return max(1, tuning.programs_a_processor // 2) if double else tuning.programs_a_processor


def max_registers(tuning: PersistentTuning, double: bool) -> int:
    """Limit on a thread's registers with which these programs run at one time; a multiprocessor has 65,536."""
    threads = 32 * tuning.num_warps * programs_a_processor(tuning, double)
    return min(255, REGISTERS // threads // 8 * 8)
