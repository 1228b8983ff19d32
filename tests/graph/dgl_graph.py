"""Helpers that test_dgl_and_ogb.py shares with other test modules."""

from tests.graph.converted import ARCS


class DGLGraph:
    """A stand-in for a DGLGraph, with the attributes and the results that DGL documents."""

    def __init__(self, ndata=(), edata=(), ntypes=("_N",)):
        self.ndata, self.edata, self.ntypes, self.etypes = dict(ndata), dict(edata), list(ntypes), ["_E"]

    def edges(self):
        return ARCS[0], ARCS[1]

    def num_nodes(self):
        return 4
