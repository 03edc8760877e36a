"""Which typical torch modules can be imported as torch's exporters write them: a table, one line per module.

Run: `python benchmarks/torch_exports.py [--only TEXT] [--opset N]`. Each module is exported by the current exporter
(`torch.onnx.export(dynamo=True)`, which needs onnxscript) and by the one that traces.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from verifolio.errors import VerifolioError
from verifolio.onnx_import.network import Network

Made = tuple[nn.Module, tuple[int, ...]]


class Of(nn.Module):
    """A function of the input and perhaps of submodules, as a module."""

    def __init__(self, function: Callable[..., Tensor], *parts: nn.Module) -> None:
        super().__init__()
        self.function, self.parts = function, nn.ModuleList(parts)

    def forward(self, x: Tensor) -> Tensor:
        """The function of the submodules and the input."""
        return self.function(*self.parts, x)


class Attention(nn.Module):
    """scaled_dot_product_attention over tokens, as vision transformers write it."""

    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same shape."""
        batch, tokens, width = x.shape
        split = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        joined: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return joined


class Positions(nn.Module):
    """Patches, a class token, positional embeddings, one transformer layer."""

    def __init__(self, norm_first: bool) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, 8, 4, 4)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.places = nn.Parameter(torch.randn(1, 5, 8))
        self.layer = nn.TransformerEncoderLayer(
            8, 2, 16, 0.0, "gelu", batch_first=True, norm_first=norm_first
        )
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Images to three numbers."""
        patches = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), patches], 1) + self.places
        scores: Tensor = self.head(self.layer(tokens)[:, 0])
        return scores


class Residual(nn.Module):
    """Two convolutions with batch normalisation around a shortcut."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(
            nn.Conv2d(2, 4, 3, 2, 1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Conv2d(4, 4, 3, 1, 1),
            nn.BatchNorm2d(4),
        )
        self.shortcut = nn.Sequential(nn.Conv2d(2, 4, 1, 2), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        """relu(inner + shortcut)."""
        return torch.relu(self.inner(x) + self.shortcut(x))


class Embedded(nn.Module):
    """Positions from an embedding table and a learned sum over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.out = nn.Embedding(4, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, 4, 3) to (batch, 2)."""
        summed: Tensor = self.out(x + self.table(torch.arange(x.shape[1])))
        return summed.mean(1)


class SelfAttention(nn.Module):
    """nn.MultiheadAttention of a sequence with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        """What every token attends to."""
        mixed: Tensor = self.attention(x, x, x, need_weights=False)[0]
        return mixed


# just large enough for every window and every head
IMAGE, FLAT, TOKENS, SIGNAL = (1, 2, 8, 8), (1, 6), (1, 4, 8), (1, 2, 9)
ACTIVATIONS: dict[str, nn.Module] = {
    "relu": nn.ReLU(),
    "relu6": nn.ReLU6(),
    "leaky_relu": nn.LeakyReLU(0.1),
    "prelu": nn.PReLU(6),
    "elu": nn.ELU(0.7),
    "celu": nn.CELU(0.7),
    "selu": nn.SELU(),
    "gelu": nn.GELU(),
    "gelu_tanh": nn.GELU("tanh"),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
    "hardsigmoid": nn.Hardsigmoid(),
    "hardtanh": nn.Hardtanh(-0.5, 2.0),
    "softplus": nn.Softplus(),
    "softplus_beta": nn.Softplus(2.0),
    "softsign": nn.Softsign(),
    "tanh": nn.Tanh(),
    "sigmoid": nn.Sigmoid(),
    "logsigmoid": nn.LogSigmoid(),
    "tanhshrink": nn.Tanhshrink(),
    "softshrink": nn.Softshrink(),
    "hardshrink": nn.Hardshrink(),
    "threshold": nn.Threshold(0.1, 0.0),
    "softmax": nn.Softmax(-1),
    "log_softmax": nn.LogSoftmax(-1),
    "glu": nn.GLU(),
    "rrelu": nn.RReLU(),
}
LAYERS: dict[str, Callable[[], Made]] = {
    "linear": lambda: (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 3)), FLAT),
    "linear_no_bias": lambda: (nn.Linear(6, 5, bias=False), FLAT),
    "linear_tokens": lambda: (nn.Linear(8, 3), TOKENS),
    "bilinear": lambda: (Of(lambda b, x: b(x, x), nn.Bilinear(6, 6, 2)), FLAT),
    "flatten": lambda: (nn.Sequential(nn.Flatten(), nn.Linear(128, 3)), IMAGE),
    "conv1d": lambda: (nn.Conv1d(2, 3, 3, 2, 1), SIGNAL),
    "conv2d": lambda: (nn.Conv2d(2, 4, 3, 2, 1), IMAGE),
    "conv2d_same": lambda: (nn.Conv2d(2, 4, 3, padding="same"), IMAGE),
    "conv2d_groups": lambda: (nn.Conv2d(2, 4, 3, groups=2, dilation=2), IMAGE),
    "conv2d_reflect": lambda: (nn.Conv2d(2, 4, 3, padding=1, padding_mode="reflect"), IMAGE),
    "conv2d_circular": lambda: (nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), IMAGE),
    "conv_transpose2d": lambda: (nn.ConvTranspose2d(2, 3, 3, 2, 1, 1), IMAGE),
    "batch_norm1d": lambda: (nn.BatchNorm1d(6), FLAT),
    "batch_norm2d": lambda: (nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU()), IMAGE),
    "layer_norm": lambda: (nn.LayerNorm(8), TOKENS),
    "layer_norm_plain": lambda: (nn.LayerNorm(8, elementwise_affine=False), TOKENS),
    "group_norm": lambda: (nn.GroupNorm(2, 4), (1, 4, 3, 3)),
    "instance_norm": lambda: (nn.InstanceNorm2d(2, affine=True), IMAGE),
    "rms_norm": lambda: (nn.RMSNorm(8), TOKENS),
    "local_response_norm": lambda: (nn.LocalResponseNorm(2), IMAGE),
    "normalize": lambda: (Of(lambda x: F.normalize(x, dim=-1)), FLAT),
    "max_pool": lambda: (nn.MaxPool2d(2), IMAGE),
    "max_pool_ceil": lambda: (nn.MaxPool2d(3, 2, 1, ceil_mode=True), IMAGE),
    "avg_pool": lambda: (nn.AvgPool2d(2), IMAGE),
    "avg_pool_pad": lambda: (nn.AvgPool2d(3, 2, 1, count_include_pad=False), IMAGE),
    "adaptive_avg": lambda: (nn.AdaptiveAvgPool2d(1), IMAGE),
    "adaptive_avg_4": lambda: (nn.AdaptiveAvgPool2d(4), IMAGE),
    "adaptive_max": lambda: (nn.AdaptiveMaxPool2d(1), IMAGE),
    "lp_pool": lambda: (nn.LPPool2d(2, 2), IMAGE),
    "nearest": lambda: (nn.Upsample(scale_factor=2), IMAGE),
    "bilinear_up": lambda: (nn.Upsample(scale_factor=2, mode="bilinear"), IMAGE),
    "bilinear_corners": lambda: (nn.Upsample(size=(12, 12), mode="bilinear", align_corners=True), IMAGE),
    "pixel_shuffle": lambda: (nn.PixelShuffle(2), (1, 4, 3, 3)),
    "zero_pad": lambda: (nn.ZeroPad2d(1), IMAGE),
    "reflection_pad": lambda: (nn.ReflectionPad2d(2), IMAGE),
    "replication_pad": lambda: (nn.ReplicationPad2d(1), IMAGE),
    "dropout": lambda: (nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)), FLAT),
    "residual": lambda: (Residual(), IMAGE),
    "embedding": lambda: (Embedded(), (1, 4, 3)),
    "attention": lambda: (Attention(8, 2), TOKENS),
    "attention_causal": lambda: (Attention(8, 2, causal=True), TOKENS),
    "multihead": lambda: (SelfAttention(), TOKENS),
    "transformer": lambda: (Positions(norm_first=False), (1, 1, 8, 8)),
    "transformer_pre": lambda: (Positions(norm_first=True), (1, 1, 8, 8)),
    "max_two": lambda: (Of(lambda x: torch.maximum(x[:, :3], x[:, 3:])), FLAT),
    "where": lambda: (Of(lambda x: torch.where(x > 0.2, x, -x)), FLAT),
    "clamp": lambda: (Of(lambda x: x.clamp(-0.5, 0.5)), FLAT),
    "sort_max": lambda: (Of(lambda x: x.max(-1).values), FLAT),
    "argmax": lambda: (Of(lambda x: x.argmax(-1).float()), FLAT),
    "std": lambda: (Of(lambda x: x.std(-1)), FLAT),
    "var_mean": lambda: (
        Of(lambda x: (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + 0.1)),
        FLAT,
    ),
    "norm": lambda: (Of(lambda x: x.norm(dim=-1)), FLAT),
    "einsum": lambda: (Of(lambda x: torch.einsum("bij,bkj->bik", x, x)), (1, 3, 4)),
    "chunk": lambda: (Of(lambda x: torch.cat([p * 2 for p in x.chunk(3, -1)][::-1], -1)), FLAT),
    "roll": lambda: (Of(lambda x: x.roll(2, -1)), FLAT),
    "cumsum": lambda: (Of(lambda x: x.cumsum(-1)), FLAT),
    "unfold": lambda: (nn.Unfold(2), (1, 1, 4, 4)),
    "logsumexp": lambda: (Of(lambda x: x.logsumexp(-1)), FLAT),
    "power": lambda: (Of(lambda x: x.pow(3) + x.square() + x.abs().sqrt()), FLAT),
    "sine": lambda: (Of(lambda x: x.sin() + x.cos()), FLAT),
    "stack": lambda: (Of(lambda x: torch.stack([x, x * 2], 1).sum(1)), FLAT),
    "select": lambda: (Of(lambda x: x[:, torch.tensor([0, 2, 4])] + x[:, 1::2]), FLAT),
}


def module_names() -> list[str]:
    """All of them."""
    return [*ACTIVATIONS, *LAYERS]


def make_module(name: str) -> Made:
    """The module of a name, with fixed random weights, and the shape of its input."""
    torch.manual_seed(0)
    module, shape = (ACTIVATIONS[name], FLAT) if name in ACTIVATIONS else LAYERS[name]()
    return module.eval(), shape


def export_module(name: str, path: Path, dynamo: bool, **options: Any) -> None:
    """Write a module with torch's exporter: the current one (dynamo), or the one by tracing."""
    module, shape = make_module(name)
    example = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    chosen: dict[str, Any] = {"external_data": False} if dynamo else {"opset_version": 17}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), str(path), dynamo=dynamo, verbose=False, **(chosen | options))


def outcome(name: str, folder: Path, dynamo: bool, **options: Any) -> str:
    """What becomes of a module: imported, refused and why, or not exported."""
    path = folder / f"{name}.onnx"
    try:
        export_module(name, path, dynamo, **options)
    except Exception as error:  # torch raises a dozen types for what it cannot write
        return f"not exported: {type(error).__name__}"
    try:
        graph = Network.load(path).graph
    except VerifolioError as error:
        return f"refused: {str(error).removeprefix(str(path))[:120]}"
    return f"imported, {graph.neurons} neurons"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="modules whose name contains this")
    parser.add_argument("--opset", type=int, default=0, help="operator set of the current exporter")
    chosen = parser.parse_args()
    options = {"opset_version": chosen.opset} if chosen.opset else {}
    with tempfile.TemporaryDirectory() as folder:
        for name in module_names():
            if chosen.only in name:
                made = [outcome(name, Path(folder), True, **options), outcome(name, Path(folder), False)]
                print(f"{name:20} {made[0]:60} {made[1]}", flush=True)


if __name__ == "__main__":
    main()
