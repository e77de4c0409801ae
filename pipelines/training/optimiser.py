"""Adam as PyTorch has it, without the import of PyTorch's compiler."""

from inspect import unwrap

import torch
from torch.optim import Optimizer


class Adam(torch.optim.Adam):
    """torch.optim.Adam, to the bit, whose methods go without the wrappers that tell a compiler to leave them alone.

    Those import `torch._dynamo` on their first call, a third of the time that a short run takes to begin, and nothing
    here is compiled.
    """

    add_param_group = unwrap(Optimizer.add_param_group)
    load_state_dict = unwrap(Optimizer.load_state_dict)
    state_dict = unwrap(Optimizer.state_dict)
    zero_grad = unwrap(Optimizer.zero_grad)

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step; the wrapper does no more than to switch gradients off."""
        return unwrap(torch.optim.Adam.step)(self, closure)
