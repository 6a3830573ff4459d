"""What the convolutions of seednet cost in PyTorch: beside `cargo xtask bench --features libtorch convolutions seednet cuda bf16`.

python convolutions.py [bf16|f16|f32] [ROUNDS]; milliseconds, medians.
"""

import statistics
import sys
import time

import torch

DTYPE = {"bf16": torch.bfloat16, "f16": torch.float16, "f32": torch.float32}[sys.argv[1] if len(sys.argv) > 1 else "bf16"]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 20
LAYERS = [(3, 1024, 32), (1024, 2048, 32), (2048, 3072, 16), (3072, 4096, 16)]


def timed(work):
    start = time.perf_counter()
    done = work()
    torch.cuda.synchronize()
    return done, (time.perf_counter() - start) * 1e3


print("layer                 forward  backward")
for at, (inputs, outputs, side) in enumerate(LAYERS):
    layer = torch.nn.Conv2d(inputs, outputs, 3, padding=1, device="cuda", dtype=DTYPE)
    images = torch.randn(128, inputs, side, side, device="cuda", dtype=DTYPE, requires_grad=at > 0)
    took = []
    for _ in range(ROUNDS + 2):
        layer.zero_grad(set_to_none=True)
        images.grad = None
        output, forward = timed(lambda: layer(images))
        ones = torch.ones_like(output)
        torch.cuda.synchronize()
        _, backward = timed(lambda: output.backward(ones))
        took.append((forward, backward))
    forward, backward = (statistics.median(t[i] for t in took[2:]) for i in (0, 1))
    print(f"{inputs:5} -> {outputs:5} at {side:3} {forward:8.3f} {backward:9.3f}")
