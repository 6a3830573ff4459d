"""PyTorch itself against a golden file of PyTorch: how far a run of `bnnet` on another device lands from its file.

python bnnet.py FILE [RUNS]; the deviation of `displacement` over its tolerance, on the CPU and on CUDA: as it is, in f64
from the same f32 inputs, and with RUNS inputs that are off by about 1e-7. Beside `torch-parity --backend libtorch-cuda FILE`.

In the first step of `bnnet_sgd` one output of bn2 is 9.4e-9 in f64, and f32 is off by up to 2.2e-6 there: rounding decides
whether a gradient passes the rectifier after it.
"""

import json
import struct
import sys

import numpy as np
import torch
import torch.nn.functional as F

torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
torch.backends.cudnn.deterministic = True
KINDS = {"F32": np.float32, "U8": np.uint8, "I64": np.int64}


def read(path):
    with open(path, "rb") as file:
        head = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        body = file.read()
    spec = json.loads(head.pop("__metadata__")["spec"])
    return spec, {
        name: torch.from_numpy(np.frombuffer(body[slice(*at["data_offsets"])], KINDS[at["dtype"]]).reshape(at["shape"]).copy())
        for name, at in head.items()
    }


class BnNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8)
        self.conv2, self.bn2 = torch.nn.Conv2d(8, 16, 3, padding=1), torch.nn.BatchNorm2d(16)
        self.fc = torch.nn.Linear(1024, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(x.flatten(1))


def train(spec, held, device, noise, dtype=torch.float32):
    torch.manual_seed(noise or 0)
    net = BnNet()
    net.load_state_dict({name[5:]: tensor for name, tensor in held.items() if name.startswith("init.")}, strict=False)
    net.to(device, dtype)
    settings = {key: value for key, value in spec["optimizer"].items() if key != "type"}
    sgd = torch.optim.SGD(net.parameters(), **settings)
    losses = []
    for images, labels in zip(held["images_u8"], held["labels"]):
        images = (images.float() / 255 - 0.5) / 0.5
        if noise is not None:
            images += 1e-7 * torch.randn_like(images)
        sgd.zero_grad()
        loss = F.cross_entropy(net(images.to(device, dtype)), labels.to(device))
        loss.backward()
        sgd.step()
        losses.append(loss.item())
    return losses, {name: tensor.detach().cpu().float() for name, tensor in net.named_parameters()}


def deviation(spec, held, trained):
    """The largest displacement of a parameter over its tolerance, and whose (../shared/golden/README.md)."""
    moved = {name: (held["final." + name] - held["init." + name]).norm() for name in trained}
    least = 0.01 * torch.stack(list(moved.values())).norm()
    return max(
        ((tensor - held["final." + name]).norm() / max(moved[name], least) / spec["tolerance"]["displacement"], name)
        for name, tensor in trained.items()
    )


spec, held = read(sys.argv[1])
runs = int(sys.argv[2]) if len(sys.argv) > 2 else 24
for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
    losses, trained = train(spec, held, device, None)
    furthest = max(abs(a - b) for a, b in zip(losses, held["loss"].tolist())) / spec["tolerance"]["loss"]
    over, name = deviation(spec, held, trained)
    print(f"{device}: loss {furthest:.3f}, displacement {over:.3f} ({name}) of the tolerance")
    over, name = deviation(spec, held, train(spec, held, device, None, torch.float64)[1])
    print(f"{device}: in f64 {over:.3f} ({name})")
    noisy = [deviation(spec, held, train(spec, held, device, seed)[1])[0].item() for seed in range(1, runs + 1)]
    print(f"{device}: with inputs off by 1e-7, {sum(x > 1 for x in noisy)} of {runs} over; largest {max(noisy):.3f}")
