"""Products of linear layers in 8 bits by plain PyTorch: scales of the moment, by tensor or by row, all three products.

As torchao's dynamic recipes do it: by tensor, gradients are E5M2 and backward products add up exactly; by row, all is E4M3
and every product uses the fast accumulation.
"""
import torch
from torch import nn

E4M3, E5M2 = (torch.float8_e4m3fn, 448.0), (torch.float8_e5m2, 57344.0)  # Type, largest number.


def narrowed(x, kind, across):
    """In 8 bits, with what to multiply it by: one number, or one for each of what is left when `across` is gone."""
    dtype, largest = kind
    most = x.abs().amax() if across is None else x.abs().amax(across, keepdim=True)
    scale = (most.float() / largest).clamp(min=1e-12)
    return (x.float() / scale).clamp(-largest, largest).to(dtype), scale


def multiplied(a, b, kind_of_a, by_row, fast):
    """a [m, k] · b [k, n] as bf16. The hardware wants k to be the inner dimension of both in memory."""
    a8, a_scale = narrowed(a, kind_of_a, 1 if by_row else None)
    b8, b_scale = narrowed(b, E4M3, 0 if by_row else None)
    return torch._scaled_mm(a8.contiguous(), b8.t().contiguous().t(), scale_a=a_scale, scale_b=b_scale,
                            out_dtype=torch.bfloat16, use_fast_accum=fast)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, by_row):
        ctx.save_for_backward(x, weight)
        ctx.by_row = by_row
        return multiplied(x, weight.t(), E4M3, by_row, True)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        kind = E4M3 if ctx.by_row else E5M2
        of_x = multiplied(gradient, weight, kind, ctx.by_row, ctx.by_row)
        of_weight = multiplied(gradient.t(), x, kind, ctx.by_row, ctx.by_row)
        return of_x, of_weight.to(weight.dtype), None


class Linear(nn.Linear):
    def __init__(self, inputs, outputs, by_row):
        super().__init__(inputs, outputs, bias=False)
        self.by_row = by_row

    def forward(self, x):
        flat = x.reshape(-1, self.in_features).to(torch.bfloat16)
        return Product.apply(flat, self.weight, self.by_row).view(*x.shape[:-1], self.out_features)


def linear(scales):
    """Makes layers whose scales are of a "tensor" or of each "row"."""
    return lambda inputs, outputs: Linear(inputs, outputs, scales == "row")
