"""Experts that take the tokens routed to them: how many, only the data tells."""

import torch
from torch import Tensor, nn
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

ROUTED = "routed"


def routed_experts(
    self: nn.Module, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor
) -> Tensor:
    """Compute MixtralExperts over every expert; transformers' own loop is over those that
    were hit, which no export can trace.
    """
    result = torch.zeros_like(hidden_states)
    for expert in range(self.num_experts):
        token, choice = torch.where(top_k_index == expert)
        gate, up = nn.functional.linear(hidden_states[token], self.gate_up_proj[expert]).chunk(
            2, dim=-1
        )
        created = nn.functional.linear(self.act_fn(gate) * up, self.down_proj[expert])
        result = result.index_add(0, token, created * top_k_weights[token, choice, None])
    return result


ALL_EXPERTS_FUNCTIONS.register(ROUTED, routed_experts)
