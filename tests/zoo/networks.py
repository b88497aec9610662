"""Graph networks in torch; a graph's edges are int64[2,edges] from sources to targets."""

import torch
from torch import Tensor, nn


class MessagePassing(nn.Module):
    """Layers of messages made of both ends and the edge, added up at their target, and a gated
    update; returns nodes and their mean.
    """

    def __init__(self, node: int, edge: int, layers: int) -> None:
        super().__init__()
        self.messages = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * node + edge, node), nn.ReLU(), nn.Linear(node, node))
            for _ in range(layers)
        )
        self.updates = nn.ModuleList(nn.GRUCell(node, node) for _ in range(layers))

    def forward(self, nodes: Tensor, edges: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        source, target = edges[0], edges[1]
        degree = (
            nodes.new_zeros(nodes.shape[0])
            .scatter_add(0, target, torch.ones_like(features[:, 0]))
            .clamp(min=1)
        )
        for message, update in zip(self.messages, self.updates, strict=True):
            sent = message(torch.cat([nodes[source], nodes[target], features], dim=1))
            gathered = torch.zeros_like(nodes).scatter_add(
                0, target.unsqueeze(1).expand_as(sent), sent
            )
            nodes = update(gathered / degree.unsqueeze(1), nodes)
        return nodes, nodes.mean(0)


class GraphAttention(nn.Module):
    """Layers of attention over the edges that reach a node; returns nodes and their greatest
    values.
    """

    def __init__(self, node: int, edge: int, layers: int) -> None:
        super().__init__()
        self.values = nn.ModuleList(nn.Linear(node, node) for _ in range(layers))
        self.scores = nn.ModuleList(nn.Linear(2 * node + edge, 1) for _ in range(layers))

    def forward(self, nodes: Tensor, edges: Tensor, features: Tensor) -> tuple[Tensor, Tensor]:
        source, target = edges[0], edges[1]
        for value, score in zip(self.values, self.scores, strict=True):
            scores = nn.functional.leaky_relu(
                score(torch.cat([nodes[source], nodes[target], features], dim=1)).squeeze(1), 0.2
            )
            highest = torch.full_like(nodes[:, 0], -1e9).scatter_reduce(0, target, scores, "amax")
            weights = (scores - highest[target]).exp()
            total = torch.zeros_like(nodes[:, 0]).scatter_add(0, target, weights)
            sent = value(nodes)[source] * (weights / total[target]).unsqueeze(1)
            gathered = torch.zeros_like(nodes).scatter_add(
                0, target.unsqueeze(1).expand_as(sent), sent
            )
            nodes = nodes + torch.relu(gathered)
        return nodes, nodes.amax(0)
