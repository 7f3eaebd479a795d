"""What orrery and the PyTorch baseline share: first parameters, the order of samples, the learning rate.

The same whole-number arithmetic as executor/runtime/state.cpp, executor/train/batches.cpp and learning_rate.cpp, on
arrays, so that both sides train from the same parameters on the same windows of text. `python3 tests/gpu/text.py` holds
it against values that orrery made.
"""
import concurrent.futures
import math
import os

import numpy as np

WORD = (1 << 64) - 1
CHUNK = 1 << 20  # Elements that a thread draws at a time: 8 MiB an array.


def mix64(x):
    """SplitMix64 of a uint64 array; whole numbers wrap, as they do in C++."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def mix64_of(value):
    """The same of one Python number."""
    x = (value + 0x9E3779B97F4A7C15) & WORD
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & WORD
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & WORD
    return x ^ (x >> 31)


def hash_name(name):
    value = 0xCBF29CE484222325  # FNV-1a.
    for byte in name.encode():
        value = ((value ^ byte) * 0x100000001B3) & WORD
    return value


def _draw(key, begin, count, deviation):
    keys = np.arange(begin, begin + count, dtype=np.uint64) * np.uint64(2) + np.uint64(key)
    total = np.zeros(count, dtype=np.int64)
    for bits in (mix64(keys), mix64(keys + np.uint64(1))):
        for shift in (0, 16, 32, 48):
            total += ((bits >> np.uint64(shift)) & np.uint64(0xFFFF)).astype(np.int64)
    centred = total.astype(np.float64) - 8 * 32767.5
    return (centred * (deviation / math.sqrt(8 * (65536.0 * 65536.0 - 1) / 12))).astype(np.float32)


def initial_values(seed, tensor, count, deviation=0.02):
    """The first `count` elements of a tensor by its name, as float32."""
    key = mix64_of(seed ^ hash_name(tensor))
    values = np.empty(count, dtype=np.float32)

    def fill(begin):
        n = min(CHUNK, count - begin)
        values[begin:begin + n] = _draw(key, begin, n, deviation)

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as threads:  # numpy lets go of the interpreter.
        list(threads.map(fill, range(0, count, CHUNK)))
    return values


def _permuted(index, size, key):
    bits = max(1, ((size - 1).bit_length() + 1) // 2)
    mask = (1 << bits) - 1
    at = index
    while True:
        left, right = at >> bits, at & mask
        for number in range(4):
            left, right = right, left ^ (mix64_of(key + number * 0x100000000 + right) & mask)
        at = left << bits | right
        if at < size:
            return at


class SampleOrder:
    """Where sample n of a run begins in the file of tokens."""

    def __init__(self, tokens, sequence, seed):
        self.sequence, self.windows, self.seed = sequence, (tokens - 1) // sequence, seed
        if self.windows < 1:
            raise SystemExit(f"text: {tokens} tokens; a sequence and the token after it take {sequence + 1}")

    def begin(self, n):
        epoch, index = divmod(n, self.windows)
        return _permuted(index, self.windows, mix64_of(self.seed) ^ mix64_of(epoch + 1)) * self.sequence


def read_tokens(file, width):
    """Little-endian numbers of 1, 2 or 4 bytes, without a header."""
    return np.fromfile(file, dtype={1: "<u1", 2: "<u2", 4: "<u4"}[width])


def windows(tokens, order, first, count):
    """Samples first … first + count − 1, each a sequence and the token after it, as int64."""
    starts = np.array([order.begin(n) for n in range(first, first + count)], dtype=np.int64)
    return tokens[starts[:, None] + np.arange(order.sequence + 1)].astype(np.int64)


def learning_rate(step, peak, warmup, decay="constant", floor=0.0, steps=1):
    """Of step 0, 1, …; decays from the end of the warm-up to step `steps`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    if decay == "constant":
        return peak
    x = min(1.0, (step - warmup) / max(1, steps - warmup))
    return floor + (peak - floor) * (1 - x if decay == "linear" else 0.5 * (1 + math.cos(math.pi * x)))


def self_check():
    """AssertionError where the arithmetic has drifted from orrery's, from which these values are."""
    drawn = initial_values(1, "layer1.attention.q_weight", 1)
    assert drawn.view(np.uint32)[0] == 0x3C484854
    far = _draw(mix64_of(7 ^ hash_name("embedding.table")), 1000003, 1, 0.02)
    assert far.view(np.uint32)[0] == 0xBC161168
    order = SampleOrder(208, 1, 1)
    assert [order.begin(n) for n in (0, 1, 2, 206, 207, 208)] == [69, 54, 197, 33, 58, 79]
    assert [SampleOrder(100001, 1, 42).begin(n) for n in (0, 1, 2)] == [37075, 50602, 42323]


if __name__ == "__main__":
    self_check()
    print("text: as orrery draws and orders")
