"""Settings of the model and of its training: sections `model`, `train` and `distribution` of a run's configuration.

They travel as JSON to the process that trains and with the exported model.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from foundation.special_tokens import MIN_VOCAB_SIZE


class Section(BaseModel):
    """A frozen part of the configuration; unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True, allow_inf_nan=False)


class ModelConfig(Section):
    """A decoder-only transformer. The defaults are a small Llama-like model."""

    vocab_size: int = Field(4096, ge=MIN_VOCAB_SIZE, le=1_000_000)
    """Pieces of the tokenizer, special and byte pieces among them."""

    seq_len: int = Field(256, ge=8, le=131_072)
    """Tokens that the model sees at once; also the length of packed rows."""

    num_layers: int = Field(4, ge=1, le=512)
    """Transformer blocks."""

    width: int = Field(256, ge=8, le=65_536)
    """Features of the residual stream (d_model)."""

    num_heads: int = Field(4, ge=1, le=1024)
    """Attention heads; must divide the width into even parts."""

    num_kv_heads: int | None = Field(None, ge=1, le=1024)
    """Heads of keys and values (grouped-query attention); must divide num_heads. Null: as many as num_heads."""

    mlp_width: int | None = Field(None, ge=8, le=524_288)
    """Features inside the MLP. Null: 4 x width for gelu, 8/3 x width rounded up to 32 for swiglu."""

    norm: Literal["rmsnorm", "layernorm"] = "rmsnorm"
    """Normalization before attention, before the MLP and at the end."""

    position: Literal["rope", "learned"] = "rope"
    """Rotary phases inside attention, or a learned table added to the embedding."""

    mlp: Literal["swiglu", "gelu"] = "swiglu"
    """Gated (three matrices) or plain (two matrices, tanh-approximated gelu)."""

    use_bias: bool = False
    """Biases in the projections of attention and MLP, as in GPT-2."""

    tie_embeddings: bool = True
    """The output head is the embedding."""

    rope_theta: float = Field(10_000.0, gt=1)
    """Base of the rotary wavelengths."""

    norm_epsilon: float = Field(1e-5, gt=0, lt=1)
    """Added to the variance before the square root."""

    qk_norm: bool = False
    """RMSNorm of every head's queries and keys, each with a scale of its own, before the rotary phases."""

    dropout: float = Field(0.0, ge=0, lt=1)
    """Share of features set to zero, in training alone, after the embedding and where a block adds to the stream."""

    init_stddev: float = Field(0.02, gt=0, lt=10)
    """Standard deviation of initial weights; projections into the residual stream get it over sqrt(2 x num_layers)."""

    @model_validator(mode="after")
    def _heads_fit(self) -> "ModelConfig":
        if self.width % self.num_heads:
            near = [h for h in range(1, self.width + 1) if self.width % h == 0 and self.width // h >= 16]
            raise ValueError(
                f"num_heads {self.num_heads} does not divide width {self.width}; set num_heads to one of {near}"
            )
        if self.head_dim % 2 and self.position == "rope":
            raise ValueError(
                f"rope needs an even number of features per head; width {self.width} / num_heads {self.num_heads} = "
                f"{self.head_dim}; change one of them, or set position: learned"
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"num_kv_heads {self.num_kv_heads} does not divide num_heads {self.num_heads}; choose a divisor"
            )
        return self

    @property
    def head_dim(self) -> int:
        """Features per attention head."""
        return self.width // self.num_heads

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values, resolved."""
        return self.num_kv_heads or self.num_heads

    @property
    def hidden_width(self) -> int:
        """Features inside the MLP, resolved."""
        if self.mlp_width:
            return self.mlp_width
        return 4 * self.width if self.mlp == "gelu" else -(-(8 * self.width // 3) // 32) * 32


class TrainConfig(Section):
    """The optimization. A step is one update of the weights from `global_batch_size` rows."""

    steps: int = Field(400, ge=1, le=100_000_000)
    """Updates of the weights in all; the schedule of the learning rate spans them."""

    max_tokens: int | None = Field(None, ge=1)
    """End after the step in which this many tokens have been predicted. Null: no such budget."""

    max_minutes: float | None = Field(None, gt=0)
    """End after this wall time of training, over all restarts. Null: no such budget."""

    early_stop_validations: int | None = Field(None, ge=1)
    """End after this many validations in a row without a better loss than the best so far. Null: never."""

    global_batch_size: int = Field(16, ge=1, le=1_000_000)
    """Rows per step, over all workers and microbatches."""

    num_microbatches: int = Field(1, ge=1, le=65_536)
    """Parts into which a step's rows are cut to save memory; must divide global_batch_size."""

    precision: Literal["float32", "bfloat16", "float16", "auto"] = "float32"
    """Of activations and matrix products. Weights, moments, norms, softmax and loss are float32 always; float16
    trains with a dynamic loss scale; auto takes bfloat16 where that is measured to be faster (see `compile`)."""

    gradient_checkpointing: Literal["none", "attention", "full"] = "none"
    """What the backward pass computes again instead of keeping it. attention: queries to weighted values, and the
    elementwise part of the MLP, from the inputs of both; full: whole blocks from their inputs."""

    blocks_per_checkpoint: int = Field(1, ge=1, le=512)
    """full: blocks that share one kept input; more need less memory for inputs and more for one stretch."""

    warm_start: Literal["none", "baseline"] = "none"
    """baseline: begins with the weights of the model that the registry serves, if there is one; its tokenizer and
    shapes must be the same. For pretraining that continues on a new span."""

    seed: int = Field(0, ge=0, lt=2**31)
    """Decides the initial weights and the order of rows."""

    optimizer: Literal["adamw", "muon"] = "adamw"
    """muon: orthogonalized momentum for the matrices inside the blocks, AdamW for everything else."""

    learning_rate: float = Field(1e-3, gt=0, lt=10)
    """Peak learning rate."""

    schedule: Literal["cosine", "linear", "wsd", "constant"] = "cosine"
    """Course of the learning rate after warm-up. wsd: constant until the last `decay_share` of steps, then linear."""

    decay_share: float = Field(0.2, gt=0, le=1)
    """wsd: share of the steps, at the end, in which the learning rate falls."""

    warmup_steps: int = Field(20, ge=0)
    """Steps in which the learning rate rises linearly from 0 to its peak."""

    final_learning_rate: float = Field(0.1, ge=0, le=1)
    """Learning rate of the last step, as a fraction of the peak; not with a constant schedule."""

    weight_decay: float = Field(0.1, ge=0, lt=10)
    """Decoupled (AdamW) decay of matrices; norms, biases and embeddings do not decay."""

    beta1: float = Field(0.9, ge=0, lt=1)
    """AdamW: decay of the gradient's running mean."""

    beta2: float = Field(0.95, ge=0, lt=1)
    """AdamW: decay of the squared gradient's running mean."""

    epsilon: float = Field(1e-8, gt=0, lt=1)
    """AdamW: added to the root of the second moment."""

    clip_norm: float | None = Field(1.0, gt=0)
    """Largest global norm of the summed gradient. Null: no clipping."""

    muon_momentum: float = Field(0.95, ge=0, lt=1)
    """muon: decay of the momentum (Nesterov's)."""

    z_loss: float = Field(0.0, ge=0, lt=1)
    """Weight of the squared logarithm of the softmax's denominator, which keeps logits small (PaLM uses 1e-4)."""

    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of the target's probability that is spread over the whole vocabulary."""

    ema_decay: float | None = Field(None, gt=0, lt=1)
    """Decay of a running mean of the weights, which is then validated and exported. Null: the weights themselves."""

    initial_loss_scale: float = Field(65536.0, ge=1, le=2.0**24)
    """float16: loss scale of the first step."""

    loss_scale_growth_steps: int = Field(2000, ge=1)
    """float16: finite steps in a row after which the loss scale doubles."""

    compile: Literal["auto", "xla", "fused", "graph"] = "auto"
    """How the step is compiled. xla: the whole by XLA; fused: elementwise parts by XLA, matrix products by the
    library (oneDNN, cuBLAS); graph: a plain TensorFlow graph; auto: the faster of the first two on this machine by a
    short measurement, whose answer is kept with the checkpoints."""

    log_every: int = Field(10, ge=1)
    """Steps between two lines of the training log."""

    eval_every: int = Field(200, ge=1)
    """Steps between two validations; one more follows the last step."""

    eval_rows: int = Field(128, ge=1)
    """Rows of the eval split, from its start, that a validation reads at most."""

    checkpoint_every: int = Field(200, ge=1)
    """Steps between two checkpoints; one more follows the last step."""

    keep_checkpoints: int = Field(2, ge=1, le=1000)
    """Newest checkpoints that stay on the disk."""

    keep_best: bool = False
    """The checkpoint with the best validation loss stays, too, and is what gets exported."""

    abandon_unfinished: bool = False
    """Begins a new training though one with other settings was stopped and could go on."""

    async_checkpoints: bool = True
    """Training goes on while a checkpoint is written."""

    input: Literal["mapped", "memory", "stream"] = "mapped"
    """Where rows come from. mapped: from their files, at random, by way of the page cache; memory: the same rows in
    the same order, all read at the start; stream: from front to back through a shuffle buffer, for stores without
    random access, in an order of its own."""

    shuffle_buffer_rows: int = Field(16_384, ge=1)
    """stream: rows among which the next one is drawn."""

    @model_validator(mode="after")
    def _batch_divides(self) -> "TrainConfig":
        if self.global_batch_size % self.num_microbatches:
            divisors = [k for k in range(1, self.global_batch_size + 1) if self.global_batch_size % k == 0]
            raise ValueError(
                f"num_microbatches {self.num_microbatches} does not divide global_batch_size "
                f"{self.global_batch_size}; set num_microbatches to one of {divisors}"
            )
        if self.blocks_per_checkpoint > 1 and self.gradient_checkpointing != "full":
            raise ValueError(
                f"blocks_per_checkpoint {self.blocks_per_checkpoint} needs gradient_checkpointing: full, not "
                f"{self.gradient_checkpointing}; change one of them"
            )
        if self.warmup_steps >= self.steps:
            raise ValueError(
                f"warmup_steps {self.warmup_steps} is not below steps {self.steps}: the learning rate would never "
                "reach its peak; lower warmup_steps"
            )
        return self


class DistributionConfig(Section):
    """On which devices, in which processes, a step is computed. None of it changes what is learned."""

    strategy: Literal["none", "mirrored", "multi_worker"] = "none"
    """none: one device; mirrored: several devices of one process; multi_worker: several processes, each with all
    devices that it sees. The global batch is divided among them; where it does not divide, the last get less."""

    num_workers: int = Field(1, ge=1, le=4096)
    """multi_worker: processes."""

    num_devices: int | None = Field(None, ge=1, le=64)
    """mirrored: accelerators, or, on a machine without, parts of the CPU. Null: all accelerators, or the whole CPU."""

    launcher: Literal["auto", "in_process", "local", "kubernetes"] = "auto"
    """Who starts the processes. in_process: training runs in the component's own; local: on this host; kubernetes: a
    TFJob; auto: in_process for strategy none, else local."""

    max_restarts: int = Field(3, ge=0, le=1000)
    """local: how often the workers start again, from the newest checkpoint, after one has died."""

    restart_pause_s: float = Field(1.0, ge=0, le=3600)
    """local: pause before the first restart; it doubles with each one, up to a minute or this if it is longer."""

    startup_timeout_s: float = Field(300.0, gt=0)
    """local: within which all workers must have found each other."""

    heartbeat_timeout_s: float = Field(60.0, ge=2)
    """local: a worker without a sign of life for so long counts as dead."""

    step_timeout_s: float = Field(1800.0, gt=0)
    """local: within which some worker must finish a step, a validation, a checkpoint or the export."""

    @model_validator(mode="after")
    def _fits_the_strategy(self) -> "DistributionConfig":
        if self.num_workers > 1 and self.strategy != "multi_worker":
            raise ValueError(
                f"num_workers {self.num_workers} needs strategy: multi_worker, not {self.strategy}; change one of them"
            )
        if self.num_devices is not None and self.strategy != "mirrored":
            raise ValueError(
                f"num_devices {self.num_devices} needs strategy: mirrored, not {self.strategy}; change one of them"
            )
        if self.launcher == "in_process" and self.num_workers > 1:
            raise ValueError(
                f"launcher in_process is one process, num_workers {self.num_workers} are more; set launcher: local"
            )
        if self.launcher == "kubernetes" and self.strategy != "multi_worker":
            raise ValueError(
                f"launcher kubernetes needs strategy: multi_worker, not {self.strategy}; change one of them"
            )
        return self

    @property
    def resolved_launcher(self) -> str:
        """`in_process`, `local` or `kubernetes`."""
        if self.launcher != "auto":
            return self.launcher
        return "in_process" if self.strategy == "none" else "local"
