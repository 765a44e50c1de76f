"""Where a configuration works on the device's roofline: the arithmetic that orders candidates.

Bytes and operations come from the model's shape, the device's peaks from the vendors' figures, the batch from
the load's concurrency, cut by max-num-seqs and by the KV cache. On a CPU nothing is assumed.
"""

from autotune.engine.model_shape import ModelShape, read_model_shape
from autotune.host.peaks import PEAKS, Peaks
from autotune.search.roofline import Operating
from autotune.space.config import LaunchConfig
from autotune.tuner.plan import Plan
from autotune.tuner.variants import VARIANT

ONE_BYTE = ("fp8", "mxfp8", "int8")


class DevicePhysics:
    """Turns a launch config into its operating point; None where the model or the device is unknown."""

    def __init__(self, plan: Plan, shape: ModelShape | None) -> None:
        self._plan = plan
        self._shape = shape
        shapes = {n: read_model_shape(each.folder) for n, each in plan.variants.items() if each.folder is not None}
        self._variants = {name: each for name, each in shapes.items() if each is not None}
        self._peaks: Peaks | None = PEAKS.get(plan.device.class_hint)

    @property
    def known(self) -> bool:
        """Whether anything can be said at all."""
        return self._shape is not None and self._peaks is not None and self._plan.workload.mean_output_tokens > 0

    def __call__(self, config: LaunchConfig, /) -> Operating | None:
        if self._shape is None or self._peaks is None:
            return None
        one_byte = str(config.get("quantization") or "").startswith(ONE_BYTE)
        own = self._variants.get(str(config.get(VARIANT)), self._shape)
        weights = own.weights_bytes - (own.linear_bytes / 2 if one_byte else 0.0)
        workload = self._plan.workload
        return Operating(
            batch=self._batch(config),
            weight_bytes=weights,
            kv_bytes_per_token=self._kv_bytes_per_token(config, self._shape),
            flops_per_token=2.0 * self._shape.linear_bytes / self._shape.dtype_bytes,
            input_tokens=max(workload.mean_input_tokens, 1.0),
            output_tokens=max(workload.mean_output_tokens, 1.0),
            bandwidth_bytes_s=self._peaks.bandwidth_bytes_s,
            peak_flops=self._peaks.flops_8bit if one_byte else self._peaks.flops_16bit,
        )

    def _batch(self, config: LaunchConfig) -> float:
        seqs, _ = self._plan.space.vllm_defaults.batch(self._plan.space.fixed.merged(config))
        return float(min(self._plan.concurrency, seqs if isinstance(seqs, int) else self._plan.concurrency))

    def _kv_bytes_per_token(self, config: LaunchConfig, shape: ModelShape) -> float:
        size = 1 if str(config.get("kv-cache-dtype") or "").startswith(ONE_BYTE) else shape.kv_dtype_bytes
        per_layer = 2 * shape.kv_heads * shape.head_size
        attention = (shape.full_layers + shape.sliding_layers) * per_layer
        return float((attention + shape.latent_layers * shape.latent_size) * size)
