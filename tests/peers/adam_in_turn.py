"""stoker's AdamW and DeepSpeedCPUAdam, one update each in turn, so that a machine whose
memory changes speed from second to second does not decide: `adam_in_turn.py OPTIMIZER MILLIONS THREADS ROUNDS`, where
OPTIMIZER is the program of `cargo xtask bench optimizer`. Prints the median of each, and of the ratios of one round's.
"""

import os
import select
import statistics
import subprocess
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import torch
from deepspeed.ops.adam import DeepSpeedCPUAdam

program, millions, threads, rounds = sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
elements = int(millions * 1e6)
torch.set_num_threads(threads)


def parameter():
    made = torch.nn.Parameter(torch.full((elements,), 0.5))
    made.grad = torch.full_like(made, 1e-2)
    return made


deepspeed = DeepSpeedCPUAdam([parameter()], lr=1e-3, adamw_mode=True)
ours = subprocess.Popen(
    [program, "turns", str(millions), str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)


def answer():
    if not select.select([ours.stdout], [], [], 60)[0]:
        ours.kill()
        sys.exit("the optimizer program says nothing for a minute")
    line = ours.stdout.readline()
    return line or sys.exit(f"the optimizer program ended with {ours.wait(timeout=60)}")


assert answer() == "ready\n"


def timed(step):
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


def asked(kind):
    ours.stdin.write(kind + "\n")
    return float(answer())


turns = {
    "f32": lambda: asked("f32"),
    "deepspeed": lambda: timed(deepspeed.step),
    "f32 again": lambda: asked("f32"),
    "plain": lambda: asked("plain"),
    "bf16": lambda: asked("bf16"),
    "bf16-moments": lambda: asked("bf16-moments"),
}
took = {name: [] for name in turns}
for number in range(rounds + 2):
    for name, turn in turns.items():
        # OpenMP's threads spin for a while after they worked, on the processors of whoever comes next.
        time.sleep(0.02)
        took[name].append(turn())
ours.stdin.close()
ours.wait(timeout=60)
for name, all_of in took.items():
    del all_of[:2]  # They touch the memory first.
    print(f"{name:13} {statistics.median(all_of) * 1e3:7.1f} ms")


def ratio(what, over):
    ratios = sorted(b / a for a, b in zip(took[what], took[over]))
    low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
    return f"{statistics.median(ratios):.2f} (middle half {low:.2f} to {high:.2f})"


took["f32 around it"] = [statistics.mean(pair) for pair in zip(took["f32"], took["f32 again"])]
print("f32 is so many times as fast as DeepSpeedCPUAdam:", ratio("f32 around it", "deepspeed"))
print("f32 is so much of the loop that only moves its bytes:", ratio("f32 again", "plain"))
print("a bf16 gradient, whose update moves as many bytes, is so much of f32:", ratio("bf16", "f32 again"))
print("bf16 moments are so many times as fast as f32:", ratio("bf16-moments", "f32 again"))
