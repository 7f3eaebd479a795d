#!/bin/bash
# Llama 3 8B on two nodes, as one would start it with Megatron-LM. Written for the tests of orrery plan import.
#SBATCH --nodes=2

export CUDA_DEVICE_MAX_CONNECTIONS=1
export NCCL_IB_SL=1

GPUS_PER_NODE=${GPUS_PER_NODE:-8}
TP=2
PP=4

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $SLURM_NNODES
    --rdzv_backend c10d
    --rdzv_endpoint "$(hostname):6000"
)

MODEL_ARGS=(
    --use-mcore-models
    --num-layers 32
    --hidden-size $((32 * 128))
    --ffn-hidden-size 14336
    --num-attention-heads 32
    --group-query-attention
    --num-query-groups 8
    --seq-length 8192
    --max-position-embeddings 8192
    --position-embedding-type rope
    --rotary-base 500000
    --normalization RMSNorm
    --swiglu
    --disable-bias-linear
    --untie-embeddings-and-output-weights
    --attention-dropout 0.0
    --hidden-dropout 0.0
    --tokenizer-type HuggingFaceTokenizer
    --tokenizer-model meta-llama/Meta-Llama-3-8B # The vocabulary's size is known by this name.
)

TRAINING_ARGS=(
    --micro-batch-size 1
    --global-batch-size 128
    --rampup-batch-size 32 32 1000000
    --lr 3e-4
    --train-iters 100000
    --clip-grad 1.0
    --bf16
)

# The first virtual stage has a layer less for the embedding, the last one a layer more.
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP
    --pipeline-model-parallel-size $PP
    --pipeline-model-parallel-layout "Et*3|(tttt|)*6t*5L"
    --sequence-parallel
    --use-distributed-optimizer
    --overlap-grad-reduce
    --overlap-param-gather
    --tp-comm-overlap
)

torchrun "${DISTRIBUTED_ARGS[@]}" pretrain_gpt.py \
    "${MODEL_ARGS[@]}" \
    "${TRAINING_ARGS[@]}" \
    "${PARALLEL_ARGS[@]}" \
    --data-path "$1"
