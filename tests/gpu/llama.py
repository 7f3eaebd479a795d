"""A Llama-shaped decoder in PyTorch by the sizes of a Hugging Face config.json, with its loss.

The residual stream has the type that is computed with; query, key and value are one product, gate and up another.
"""
import json

import torch
import torch.nn.functional as F
from torch import nn


class Config:
    def __init__(self, file):
        with open(file, encoding="utf-8") as text:
            values = json.load(text)
        if values.get("model_type", "llama") != "llama" or values.get("rope_scaling"):
            raise SystemExit(f"{file}: only plain Llama models are built here")
        self.hidden = values["hidden_size"]
        self.layers = values["num_hidden_layers"]
        self.heads = values["num_attention_heads"]
        self.kv_heads = values.get("num_key_value_heads", self.heads)
        self.head_dim = values.get("head_dim") or self.hidden // self.heads
        self.ffn = values["intermediate_size"]
        self.vocab = values["vocab_size"]
        self.theta = values.get("rope_theta", 10000.0)
        self.epsilon = values.get("rms_norm_eps", 1e-6)
        self.tied = values.get("tie_word_embeddings", False)


class Norm(nn.Module):
    def __init__(self, width, epsilon):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x):
        return F.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), self.epsilon).to(x.dtype)


def rotated(x, cosines, sines):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cosines - b * sines, a * sines + b * cosines), -1).to(x.dtype)


class Layer(nn.Module):
    def __init__(self, config, linear):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        self.norm1 = Norm(config.hidden, config.epsilon)
        self.norm2 = Norm(config.hidden, config.epsilon)
        self.qkv = linear(config.hidden, (config.heads + 2 * config.kv_heads) * config.head_dim)
        self.out = linear(config.heads * config.head_dim, config.hidden)
        self.gate_up = linear(config.hidden, 2 * config.ffn)
        self.down = linear(config.ffn, config.hidden)

    def forward(self, x, cosines, sines):
        batch, sequence, _ = x.shape
        width, kv_width = self.heads * self.head_dim, self.kv_heads * self.head_dim
        q, k, v = self.qkv(self.norm1(x)).split([width, kv_width, kv_width], -1)
        q = rotated(q.view(batch, sequence, self.heads, self.head_dim).transpose(1, 2), cosines, sines)
        k = rotated(k.view(batch, sequence, self.kv_heads, self.head_dim).transpose(1, 2), cosines, sines)
        v = v.view(batch, sequence, self.kv_heads, self.head_dim).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.out(y.transpose(1, 2).reshape(batch, sequence, width))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def plain_linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class Llama(nn.Module):
    """`linear` makes the layers' products; the head is a plain one, as in other trainers with 8-bit products."""

    def __init__(self, config, sequence, dtype, linear=plain_linear):
        super().__init__()
        self.dtype = dtype
        self.table = nn.Embedding(config.vocab, config.hidden)
        self.layers = nn.ModuleList([Layer(config, linear) for _ in range(config.layers)])
        self.final_norm = Norm(config.hidden, config.epsilon)
        self.head = plain_linear(config.hidden, config.vocab)
        if config.tied:
            self.head.weight = self.table.weight
        pairs = config.head_dim // 2
        turns = config.theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
        angles = torch.arange(sequence, dtype=torch.float64)[:, None] * turns
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, tokens, labels):
        x = self.table(tokens).to(self.dtype)
        for layer in self.layers:
            x = layer(x, self.cosines, self.sines)
        logits = self.head(self.final_norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())

    def decay_groups(self, decay):
        """As orrery: matrices and tables are decayed, the weights of norms aren't."""
        matrices = [p for p in self.parameters() if p.dim() > 1]
        others = [p for p in self.parameters() if p.dim() <= 1]
        return [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def begin_random(model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.02)


@torch.no_grad()
def begin_as_orrery(model, config, seed, values, round_to=None):
    """values(seed, tensor's name, elements) draws a tensor as orrery does (text.initial_values). Orrery's matrices stand
    [inputs, outputs], PyTorch's the other way round. Where orrery's parameters are 16 bits wide, so is what its fp32
    copies begin with: round_to."""

    def draw(name, rows, columns):
        return torch.from_numpy(values(seed, name, rows * columns)).view(rows, columns)

    def put(parameter, *parts):
        whole = torch.cat(parts, 0)
        parameter.copy_(whole if round_to is None else whole.to(round_to).float())

    hidden, width, kv_width = config.hidden, config.heads * config.head_dim, config.kv_heads * config.head_dim
    put(model.table.weight, draw("embedding.table", config.vocab, hidden))
    for number, layer in enumerate(model.layers, 1):
        name = f"layer{number}."
        put(layer.qkv.weight, draw(name + "attention.q_weight", hidden, width).T,
            draw(name + "attention.k_weight", hidden, kv_width).T, draw(name + "attention.v_weight", hidden, kv_width).T)
        put(layer.out.weight, draw(name + "attention.out_weight", width, hidden).T)
        put(layer.gate_up.weight, draw(name + "mlp.gate_weight", hidden, config.ffn).T,
            draw(name + "mlp.up_weight", hidden, config.ffn).T)
        put(layer.down.weight, draw(name + "mlp.down_weight", config.ffn, hidden).T)
    if not config.tied:
        put(model.head.weight, draw("head.weight", hidden, config.vocab).T)
