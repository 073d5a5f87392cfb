"""From model dimensions to FLOPs of every sample, per module, forward and backward."""

from balancer.flops.audio import audio_flops
from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import AudioDims, LanguageDims, VisionDims
from balancer.flops.forward import language_flops, vision_flops
from balancer.flops.presets import PRESETS, preset

__all__ = [
    "PRESETS",
    "AudioDims",
    "FlopsCost",
    "LanguageDims",
    "VisionDims",
    "audio_flops",
    "language_flops",
    "preset",
    "vision_flops",
]
