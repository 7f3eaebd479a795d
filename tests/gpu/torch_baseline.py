"""Training steps of PyTorch, as well as a competent user makes them, and their losses from orrery's first parameters.

  python3 tests/gpu/torch_baseline.py time --model scenarios/models/gpu-1.3b.json --batch 8 --sequence 2048
  torchrun --nproc-per-node 2 tests/gpu/torch_baseline.py time … --strategy fsdp2
  python3 tests/gpu/torch_baseline.py loss --model … --batch … --sequence … --data orrery-corpus.txt --steps 200

bf16 autocast over fp32 parameters, fused AdamW, causal attention, loss over the whole vocabulary, no recompute.
Results are JSON lines on standard output (or --output). In a timed block nothing waits for the GPU but its end.
"""
import argparse
import contextlib
import json
import math
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import llama  # noqa: E402
import nvml  # noqa: E402
import text  # noqa: E402

MODES = ["default", "max-autotune-no-cudagraphs", "reduce-overhead", "graph", "eager"]
RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
LOCAL = int(os.environ.get("LOCAL_RANK", 0))
POOL = 64  # Batches that lie on the GPU and are taken in turn: a step reads no file and copies nothing from the host.


def use_attention(name):
    """Which kernels scaled_dot_product_attention may take; default: PyTorch's own choice."""
    if name == "default":
        return
    backends = torch.backends.cuda
    backends.enable_cudnn_sdp(name == "cudnn")
    backends.enable_flash_sdp(name == "flash")
    backends.enable_mem_efficient_sdp(False)
    backends.enable_math_sdp(False)


def optimizer_of(model, options, **more):
    return torch.optim.AdamW(model.decay_groups(options.weight_decay), lr=options.lr, betas=(options.beta1, options.beta2),
                             eps=options.epsilon, fused=True, **more)


def data_pool(config, options, device):
    """[batches, sequences, tokens + 1] on the GPU: orrery's order of samples from a file, or random tokens."""
    batches = max(2, min(POOL, (1 << 28) // (8 * options.batch * (options.sequence + 1))))
    if not options.data:
        generator = torch.Generator(device=device)
        generator.manual_seed(1 + RANK)
        shape = (batches, options.batch, options.sequence + 1)
        return torch.randint(0, config.vocab, shape, device=device, generator=generator)
    tokens = text.read_tokens(options.data, options.token_bytes)
    order = text.SampleOrder(len(tokens), options.sequence, options.seed)
    taken = [text.windows(tokens, order, (b * WORLD + RANK) * options.batch, options.batch) for b in range(batches)]
    import numpy
    return torch.from_numpy(numpy.stack(taken)).to(device)


class Trainer:
    """A model with its optimiser; step(i) enqueues a training step on batch i of the pool."""

    def __init__(self, options):
        self.options, self.config = options, llama.Config(options.model)
        self.device = torch.device("cuda", LOCAL)
        torch.manual_seed(0)
        linear = llama.plain_linear
        if options.float8:
            import float8
            linear = float8.linear(options.float8)
        with self.device:
            self.model = llama.Llama(self.config, options.sequence, torch.bfloat16, linear)
            llama.begin_random(self.model)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.data = data_pool(self.config, options, self.device)
        self.autocast = options.strategy != "fsdp2"
        self.compiled = self._compiled(self._distributed())
        self.optimizer = optimizer_of(self.model, options, capturable=options.mode == "graph")
        self.graph = None

    def _distributed(self):
        if self.options.strategy == "ddp":
            from torch.nn.parallel import DistributedDataParallel
            return DistributedDataParallel(self.model, device_ids=[LOCAL], gradient_as_bucket_view=True)
        if self.options.strategy == "fsdp2":
            from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
            policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32,
                                          cast_forward_inputs=False)
            for layer in self.model.layers:
                fully_shard(layer, mp_policy=policy)
            fully_shard(self.model, mp_policy=policy)
        return self.model

    def _compiled(self, model):
        mode = self.options.mode
        if mode == "eager":
            return model
        return torch.compile(model, mode=None if mode in ("default", "graph") else mode)

    def _train(self, tokens, labels):
        cast = torch.autocast("cuda", torch.bfloat16) if self.autocast else contextlib.nullcontext()
        with cast:
            loss = self.compiled(tokens, labels)
        loss.backward()
        self.optimizer.step()
        return loss

    def _batch(self, number):
        batch = self.data[number % len(self.data)]
        return batch[:, :-1], batch[:, 1:]

    def step(self, number):
        tokens, labels = self._batch(number)
        if self.graph is not None:
            self.tokens.copy_(tokens)
            self.labels.copy_(labels)
            self.graph.replay()
            return self.loss
        if self.options.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        loss = self._train(tokens.contiguous(), labels.contiguous())
        self.optimizer.zero_grad(set_to_none=True)
        return loss

    def capture(self):
        """The whole step, optimiser included, as one CUDA graph; what was compiled has been run before."""
        self.tokens, self.labels = (part.contiguous() for part in self._batch(0))
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._train(self.tokens, self.labels)
                self.optimizer.zero_grad(set_to_none=True)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loss = self._train(self.tokens, self.labels).detach()
        self.graph = graph


class Blocks:
    """Warm-up and timed blocks of one trainer."""

    def __init__(self, trainer, sampler):
        self.trainer, self.sampler, self.done = trainer, sampler, 0
        self.step_s = None

    def prepare(self):
        begin = time.time()
        self.first_loss = self._run(1).item()
        self._run(5)  # What the compiler does on later calls (CUDA graph trees record on the second and third).
        torch.cuda.synchronize()
        if self.trainer.options.mode == "graph":
            self.trainer.capture()
        torch.cuda.synchronize()
        self.compile_s = time.time() - begin
        torch.cuda.empty_cache()  # What only the compiler's trials needed: another program may need it.
        torch.cuda.reset_peak_memory_stats()
        begin = time.time()
        self._run(8)
        torch.cuda.synchronize()
        self.step_s = (time.time() - begin) / 8
        if WORLD > 1:  # All ranks warm up for as many steps.
            slowest = torch.tensor([self.step_s], device=self.trainer.device)
            dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
            self.step_s = slowest.item()

    def _run(self, steps):
        for _ in range(steps):
            loss = self.trainer.step(self.done)
            self.done += 1
        return loss

    def block(self, warmup_s, steps):
        """Milliseconds a step, and what the GPU did meanwhile."""
        self._run(max(3, math.ceil(warmup_s / self.step_s)))
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        started = time.time()
        begin.record()
        loss = self._run(steps)
        end.record()
        end.synchronize()
        ended = time.time()
        self.last_loss = loss.item()
        return begin.elapsed_time(end) / steps, self.sampler.between(started, ended)


def describe(trainer, blocks, times, clocks):
    options, median = trainer.options, statistics.median(times)
    properties = torch.cuda.get_device_properties(trainer.device)
    return {"side": "pytorch", "model": options.model, "mode": options.mode, "attention": options.attention,
            "float8": options.float8, "strategy": options.strategy, "gpus": WORLD, "parameters": trainer.parameters,
            "batch": options.batch, "sequence": options.sequence, "steps": options.steps, "block_ms": times,
            "median_ms": median, "tokens_per_s": 1e3 * WORLD * options.batch * options.sequence / median,
            "peak_memory_bytes": torch.cuda.max_memory_allocated(),
            "reserved_memory_bytes": torch.cuda.max_memory_reserved(), "loss_first": blocks.first_loss,
            "loss_last": blocks.last_loss, "compile_s": round(blocks.compile_s, 1), "clocks": clocks,
            "torch": torch.__version__, "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version(),
            "gpu": properties.name, "driver": blocks.sampler.driver}


def write(options, values):
    if RANK != 0:
        return
    line = json.dumps(values) + "\n"
    if options.output:
        with open(options.output, "a", encoding="utf-8") as file:
            file.write(line)
    else:
        sys.stdout.write(line)
        sys.stdout.flush()


def sampler_of(device):
    properties = torch.cuda.get_device_properties(device)
    place = [getattr(properties, name, None) for name in ("pci_domain_id", "pci_bus_id", "pci_device_id")]
    if not all(isinstance(part, int) for part in place):
        return nvml.Sampler(LOCAL)
    return nvml.Sampler(pci_bus_id="{:08x}:{:02x}:{:02x}.0".format(*place))


def run_time(options):
    use_attention(options.attention)
    trainer = Trainer(options)
    blocks = Blocks(trainer, sampler_of(trainer.device))
    blocks.prepare()
    if options.serve:  # Every rank reads a standard input of its own.
        write(options, {"ready": True, "step_s": blocks.step_s, "compile_s": blocks.compile_s})
        for line in sys.stdin:
            _, warmup_s, steps = line.split()
            options.steps = int(steps)
            ms, clocks = blocks.block(float(warmup_s), options.steps)
            write(options, describe(trainer, blocks, [ms], [clocks]))
        return
    times, clocks = [], []
    for number in range(options.blocks):
        ms, state = blocks.block(options.warmup_s if number == 0 else 0, options.steps)
        times.append(ms)
        clocks.append(state)
    write(options, describe(trainer, blocks, times, clocks))


def run_loss(options):
    """Step by step from orrery's first parameters on its order of samples; nothing in TF32, sums in fp32."""
    text.self_check()
    use_attention(options.attention)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    config, device = llama.Config(options.model), torch.device(options.device)
    bf16 = options.precision == "bf16"
    model = llama.Llama(config, options.sequence, torch.bfloat16 if bf16 else torch.float32)
    llama.begin_as_orrery(model, config, options.seed, text.initial_values, torch.bfloat16 if bf16 else None)
    model.to(device)
    optimizer = torch.optim.AdamW(model.decay_groups(options.weight_decay), lr=options.lr, eps=options.epsilon,
                                  betas=(options.beta1, options.beta2), fused=device.type == "cuda")
    tokens = text.read_tokens(options.data, options.token_bytes)
    order = text.SampleOrder(len(tokens), options.sequence, options.seed)
    parts = options.batch // (options.microbatch or options.batch)
    losses = []
    for step in range(options.steps):
        for group in optimizer.param_groups:
            group["lr"] = text.learning_rate(step, options.lr, options.lr_warmup)
        batch = torch.from_numpy(text.windows(tokens, order, step * options.batch, options.batch)).to(device)
        total = 0
        for part in batch.chunk(parts):
            with torch.autocast(device.type, torch.bfloat16, enabled=bf16):
                loss = model(part[:, :-1].contiguous(), part[:, 1:].contiguous()) / parts
            loss.backward()
            total = total + loss.detach()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(total)
    for step, loss in enumerate(torch.stack(losses).tolist()):
        write(options, {"step": step, "loss": loss, "learning_rate": text.learning_rate(step, options.lr, options.lr_warmup)})


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["time", "loss"])
    parser.add_argument("--model", required=True, help="config.json of a Llama")
    parser.add_argument("--batch", type=int, required=True, help="sequences a step, of each GPU")
    parser.add_argument("--sequence", type=int, required=True)
    parser.add_argument("--data", help="file of tokens as for orrery; default of time: random tokens")
    parser.add_argument("--token-bytes", type=int, default=1, choices=[1, 2, 4])
    parser.add_argument("--seed", type=int, default=1, help="of first parameters and order, as training.seed")
    parser.add_argument("--lr", type=float, default=1e-4)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--epsilon", type=float, default=1e-8)
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--attention", default="default", choices=["default", "cudnn", "flash"])
    parser.add_argument("--steps", type=int, default=50, help="of a timed block, or of the losses")
    parser.add_argument("--output", help="append the lines to this file")
    of_time = parser.add_argument_group("time")
    of_time.add_argument("--mode", default="default", choices=MODES,
                         help="of torch.compile; graph: compiled, and the whole step captured as one CUDA graph")
    of_time.add_argument("--strategy", choices=["single", "ddp", "fsdp2"], help="default: single, ddp under torchrun")
    of_time.add_argument("--blocks", type=int, default=3)
    of_time.add_argument("--warmup-s", type=float, default=20)
    of_time.add_argument("--serve", action="store_true", help="a block for every line 'go SECONDS STEPS' that is read")
    of_time.add_argument("--float8", choices=["tensor", "row"], help="layers' products in 8 bits, scales of a tensor or row")
    of_loss = parser.add_argument_group("loss")
    of_loss.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
    of_loss.add_argument("--microbatch", type=int, help="sequences at a time; default: all")
    of_loss.add_argument("--lr-warmup", type=int, default=10, help="steps, as training.learning_rate_warmup; then constant")
    of_loss.add_argument("--device", default="cuda")
    options = parser.parse_args()
    options.strategy = options.strategy or ("single" if WORLD == 1 else "ddp")
    if options.what == "loss" and not options.data:
        parser.error("loss needs --data, the text that orrery trains on")
    if (options.strategy == "single") != (WORLD == 1):
        parser.error("ddp and fsdp2 need torchrun with several processes, single just one")
    if WORLD > 1 and (options.mode == "graph" or options.what == "loss"):
        parser.error("mode graph and losses are for one GPU")
    if options.what == "time" and options.steps < 1:
        parser.error("--steps: at least 1")
    return options


def main():
    options = arguments()
    if options.what == "loss":
        run_loss(options)
        return
    torch.cuda.set_device(LOCAL)
    if WORLD == 1:
        run_time(options)
        return
    if os.environ.get("NCCL_NVLS_ENABLE") != "0":
        sys.exit("torch_baseline: set NCCL_NVLS_ENABLE=0: orrery's collectives do without multicast, so both sides do")
    dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL))
    run_time(options)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
