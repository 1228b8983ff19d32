"""How ``panel_plan.py`` and its kernels cut columns into pieces: functions of the tuning alone."""

from fullgnn.kernels.spmm.reading import Columns, split_columns
from fullgnn.kernels.spmm.triton_csr import power_of_two
from fullgnn.kernels.support.tuning import PanelTuning

MIN_PIECE = 16  # columns of X in one product on tensor cores


def planes_columns(width: int, panel_rows: int, tuning: PanelTuning) -> list[Columns]:
    """Columns of ``multiply_planes``, in single pieces.

    A piece is half as wide for panels of 128 rows, and for panels of 64 rows where a row of the result is written
    number by number, which takes registers: then three programs fit on a multiprocessor.
    """
    halves = panel_rows == 128 or (panel_rows == 64 and width % 4 != 0)
    largest = tuning.planes_piece // 2 if halves else tuning.planes_piece
    rest = width % largest
    return split_columns(width, max(smallest_piece(tuning.planes_warps, 2), power_of_two(2 * rest - 1)), largest)


def max_registers(panel_rows: int, tuning: PanelTuning) -> int | None:
    """Limit on the registers of a thread of ``multiply_planes``; None: the compiler decides."""
    return tuning.planes_registers if panel_rows == 32 else None


def smallest_piece(num_warps: int, element_size: int) -> int:
    """The number of columns for which 32 rows are 16 bytes per thread, so that all threads load whole vectors."""
    return max(MIN_PIECE, num_warps * 16 // element_size)
