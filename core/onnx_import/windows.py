"""The geometry of sliding windows: strides, pads, dilations and output sizes of convolutions and pools."""

from __future__ import annotations

from dataclasses import dataclass

from verifolio.onnx_import.call import Call
from verifolio.onnx_import.values import Malformed, Refused, Shape


@dataclass(frozen=True)
class Windows:
    """One entry per spatial axis; `begin` and `end` are the pads (crops, for a transposed convolution)."""

    input: Shape
    output: Shape
    kernel: Shape
    stride: Shape
    dilation: Shape
    begin: Shape
    end: Shape

    @classmethod
    def read(cls, call: Call, image: Shape, kernel: Shape, transposed: bool = False) -> Windows:
        """Read the attributes of a convolution or pool over images of the given size."""
        axes = len(image)
        stride = _listed(call, "strides", axes, 1)
        dilation = _listed(call, "dilations", axes, 1)
        declared = call.integers("kernel_shape")
        if declared is not None and declared != kernel:
            raise Malformed(f"kernel_shape {kernel}", f"{declared}")
        if min(kernel, default=1) < 1:
            raise Malformed("a kernel of at least one entry", f"{kernel}")
        reach = tuple(d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True))
        if transposed:
            return cls._read_transposed(call, image, kernel, stride, dilation, reach)
        begin, end = _pads(call, image, stride, reach)
        ceiling = bool(call.integer("ceil_mode", 0))
        output = []
        for n, s, r, b, e in zip(image, stride, reach, begin, end, strict=True):
            room = n + b + e - r
            if room < 0:
                raise Malformed(f"an image of at least {r} entries with pads", f"{n + b + e}")
            count = -(-room // s) + 1 if ceiling else room // s + 1
            # a window that would start in the far padding is left out
            output.append(count - 1 if ceiling and (count - 1) * s >= n + b else count)
        return cls(image, tuple(output), kernel, stride, dilation, begin, end)

    @classmethod
    def _read_transposed(
        cls, call: Call, image: Shape, kernel: Shape, stride: Shape, dilation: Shape, reach: Shape
    ) -> Windows:
        extra = _listed(call, "output_padding", len(image), 0)
        full = tuple(s * (n - 1) + r + x for n, s, r, x in zip(image, stride, reach, extra, strict=True))
        wanted = call.integers("output_shape")
        mode = call.text("auto_pad", "NOTSET")
        if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
            wanted = tuple(n * s for n, s in zip(image, stride, strict=True))
            if any(w > f for w, f in zip(wanted, full, strict=True)):
                # by the standard the output is that large; ONNX Runtime makes it smaller
                raise Refused(f"ConvTranspose with auto_pad {mode} and a stride above the kernel")
        if wanted is not None:
            wanted = wanted[-len(image) :]
            total = tuple(max(f - w, 0) for f, w in zip(full, wanted, strict=True))
            half = tuple(t // 2 for t in total)
            rest = tuple(t - h for t, h in zip(total, half, strict=True))
            begin, end = (half, rest) if mode == "SAME_UPPER" else (rest, half)
        else:
            begin, end = _explicit_pads(call, len(image))
        # an output larger than what the windows reach ends in entries that hold the bias alone
        output = wanted or tuple(f - b - e for f, b, e in zip(full, begin, end, strict=True))
        if min(output) < 1:
            raise Malformed("an output of at least one entry", f"{output}")
        return cls(image, output, kernel, stride, dilation, begin, end)

    def as_image(self) -> Windows:
        """The same windows on two axes: a signal is an image of height one."""
        if len(self.input) == 2:
            return self
        if len(self.input) != 1:
            raise Refused(f"windows over {len(self.input)} axes")
        one = (1,)
        return Windows(
            one + self.input,
            one + self.output,
            one + self.kernel,
            one + self.stride,
            one + self.dilation,
            (0, *self.begin),
            (0, *self.end),
        )


def _listed(call: Call, name: str, axes: int, default: int) -> Shape:
    values = call.integers(name)
    if values is None:
        return (default,) * axes
    least = min(values, default=1)
    if len(values) != axes or least < min(default, 1) or max(values, default=1) > 2**20:
        raise Malformed(f"{name} with {axes} positive entries", f"{values}")
    return values


def _explicit_pads(call: Call, axes: int) -> tuple[Shape, Shape]:
    pads = call.integers("pads") or (0,) * (2 * axes)
    if len(pads) != 2 * axes or min(pads) < 0 or max(pads) > 2**20:
        raise Malformed(f"{2 * axes} pads >= 0", f"{pads}")
    return pads[:axes], pads[axes:]


def _pads(call: Call, image: Shape, stride: Shape, reach: Shape) -> tuple[Shape, Shape]:
    mode = call.text("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0,) * len(image), (0,) * len(image)
    if mode not in ("SAME_UPPER", "SAME_LOWER"):
        return _explicit_pads(call, len(image))
    if call.op.endswith("Pool") and max(call.integers("dilations") or (1,)) > 1:
        # the standard pads for the dilated window, ONNX Runtime for the plain one
        raise Refused(f"{call.op} with dilations and auto_pad {mode}: name the pads instead")
    needed = tuple((-(-n // s) - 1) * s + r - n for n, s, r in zip(image, stride, reach, strict=True))
    if call.op == "AveragePool" and min(needed) < 0:
        # elsewhere such windows begin at the first entry; here ONNX Runtime crops the image in some versions
        raise Refused(
            f"AveragePool with auto_pad {mode} and a stride above the kernel: name the pads instead"
        )
    total = tuple(max(t, 0) for t in needed)
    small = tuple(t // 2 for t in total)
    large = tuple(t - h for t, h in zip(total, small, strict=True))
    return (small, large) if mode == "SAME_UPPER" else (large, small)
