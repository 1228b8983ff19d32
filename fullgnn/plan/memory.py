"""What the blocks of the adjacency take of a rank's memory, in the form that its kernel wants."""

from fullgnn.kernels.spmm.blocked import held_bytes
from fullgnn.plan.statistics import GraphStatistics, Traffic


def block_bytes(
    traffic: Traffic, graph: GraphStatistics, products: list[tuple[str, int]], kernel: str, itemsize: int, rank: int
) -> float:
    """What ``rank`` holds of the matrices of ``products``.

    Args:
        products: names and columns.
        kernel: as ``conf/kernel`` names it, and not ``auto``. What tile32 and packed take of the rows is counted as csr
            would: it depends on the tiles.
        itemsize: bytes of a number.
    """
    value_bytes, total = 0 if graph.pattern else itemsize, 0.0
    for name in sorted(set(traffic.products) - ({"adj_t"} if graph.symmetric else set())):
        multiplied = {"adj", "adj_t"} if name == "adj" and graph.symmetric else {name}
        row_bytes = {columns * itemsize for product, columns in products if product in multiplied}
        total += _of_product(traffic, name, *traffic.grid.place(rank), kernel, itemsize, value_bytes, row_bytes)
    return total


def _of_product(
    traffic: Traffic,
    name: str,
    part: int,
    replica: int,
    kernel: str,
    itemsize: int,
    value_bytes: int,
    row_bytes: set[int],
) -> float:
    product, nnz, needed = traffic.products[name], traffic.nnz[name], traffic.needed[name]
    num_rows, total = product.out_rows.block_size(part), 0.0
    slices = product.out_rows.num_slices
    for stage in product.stages[replica]:
        source = product.source(part, stage)
        count = int(nnz[part, source])
        last = stage == product.stages[replica][-1]
        cuts = slices if last else 1  # the rows of the last stage are multiplied slice by slice
        num_cols = product.in_rows.block_size(source)
        if needed is not None and product.sends_needed(part, source):
            num_cols = int(needed[part, source].sum())
        if count == 0:
            continue
        for _ in range(cuts):
            rows, entries = num_rows // cuts, count // cuts
            if kernel == "blocked":
                total += held_bytes(rows, num_cols, entries, value_bytes, row_bytes)
            elif kernel == "torch":
                total += 4 * (rows + 1) + entries * (4 + itemsize)
            else:
                total += 12 * rows + entries * (4 + value_bytes)
    return total
