"""Graph networks: message passing over any number of nodes and edges."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator

from tests.zoo.case import Feed, Sizes, sizes
from tests.zoo.exporting import Program, both

if TYPE_CHECKING:
    from torch import nn

NODE, EDGE, LAYERS = 16, 8, 2
INPUTS = ("nodes", "edges", "features")


def message_passing() -> Program:
    """Every node adds up the messages of its edges, divides by their number and keeps a gated part
    of itself.
    """
    from tests.zoo.networks import MessagePassing

    return _program(MessagePassing(NODE, EDGE, LAYERS))


def graph_attention() -> Program:
    """Every node weighs the messages of its edges by a softmax over them."""
    from tests.zoo.networks import GraphAttention

    return _program(GraphAttention(NODE, EDGE, LAYERS))


def _program(module: "nn.Module") -> Program:
    import torch

    args = (torch.randn(5, NODE), torch.randint(0, 5, (2, 11)), torch.randn(11, EDGE))
    axes = {"nodes": {0: "nodes"}, "edges": {1: "edges"}, "features": {0: "edges"}}
    return Program(module, args, INPUTS, ("states", "whole"), axes)


def edges_of(point: Sizes, generator: Generator) -> Feed:
    """Sources and targets among the nodes, some nodes with many edges and some with none."""
    return {
        "edges": generator.integers(0, point["nodes"], [2, point["edges"]])
        // np.asarray([[1], [2]])
    }


_DIMS = {"nodes": "1:200", "edges": "0:1000"}
_POINTS = sizes("nodes edges", (1, 0), (1, 1), (13, 31), (200, 997), (197, 1000))

CASES = (
    *both("message_passing", message_passing, _DIMS, _POINTS, feeds=edges_of),
    *both("graph_attention", graph_attention, _DIMS, _POINTS, feeds=edges_of),
)
