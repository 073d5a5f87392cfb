"""Images decoded in stages: the same microbatches, bit for bit, whoever decodes."""

import functools
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from balancer.samples import SampleTable
from loaders import BalancedDataLoader

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore:stages keep workers"),  # three, also on two cores
]

SAMPLES = 32


class Pictures:
    """Decodes and resizes the pictures of a list, which come again where it is too short."""

    def __init__(self, paths: list[Path]) -> None:
        self.paths = [str(path) for path in paths]

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, sample_id: int) -> dict[str, torch.Tensor]:
        with Image.open(self.paths[sample_id % len(self.paths)]) as image:
            pixels = np.array(image.convert("RGB").resize((48, 32)))
        values = torch.from_numpy(pixels).permute(2, 0, 1).to(torch.float32).div_(255)
        return {"id": torch.tensor(sample_id), "pixels": values}


@functools.cache
def made(folder: Path) -> list[Path]:
    """Pictures of many sizes and of both formats."""
    rng = np.random.default_rng(0)
    paths = []
    for number in range(8):
        size = rng.integers(16, 400, 2)
        path = folder / f"{number}.{'jpg' if number % 2 else 'png'}"
        Image.fromarray(rng.integers(0, 256, (*size, 3), np.uint8)).save(path)
        paths.append(path)
    return paths


@pytest.fixture(scope="module", params=["made", "demo"])
def pictures(request, tmp_path_factory) -> Pictures:
    if request.param == "made":
        return Pictures(made(tmp_path_factory.mktemp("pictures")))
    folder = request.getfixturevalue("shared_data") / "demo"
    found = sorted(p for p in folder.rglob("*") if p.suffix in (".jpg", ".png"))
    if not found:
        pytest.skip(f"needs images in {folder}")
    return Pictures(sorted(found, key=lambda path: path.stat().st_size)[:SAMPLES])


def microbatches(pictures: Pictures, **options) -> list[list[dict[str, torch.Tensor]]]:
    """What an epoch hands out."""
    loader = BalancedDataLoader(
        pictures,
        sizes=SampleTable.from_lengths([1 + i % 5 for i in range(SAMPLES)]),
        cost_model=lambda table: table.text_tokens,
        **{
            "global_batch_size": 8, "num_microbatches": 2, "dp_rank": 1, "dp_size": 2,
            "effort": "fast", "collate_fn": list, **options,
        },
    )  # fmt: skip
    return list(loader)


@pytest.fixture(scope="module")
def expected(pictures):
    return microbatches(pictures, num_workers=0)


@pytest.mark.parametrize(
    "options",
    [
        {"workers": "thread", "num_workers": 1},
        {"workers": "thread", "num_workers": 3, "look_ahead": 2, "max_bytes": 1 << 16},
        {"workers": "process", "num_workers": 2, "multiprocessing_context": "fork"},
        {"workers": "process", "num_workers": 1, "multiprocessing_context": "spawn"},
        {"workers": "process", "num_workers": 3, "multiprocessing_context": "forkserver"},
        {"workers": "torch", "num_workers": 2, "multiprocessing_context": "fork"},
    ],
    ids=lambda options: "-".join(map(str, options.values())),
)
def test_decoded_microbatches_are_bit_equal_whoever_decodes(pictures, expected, options):
    """Any number and kind of workers, engine and start method: those of one process."""
    ours = microbatches(pictures, **options)
    assert len(ours) == len(expected) == 8
    for left, right in zip(ours, expected, strict=True):
        assert [int(sample["id"]) for sample in left] == [int(sample["id"]) for sample in right]
        assert all(torch.equal(a["pixels"], b["pixels"]) for a, b in zip(left, right, strict=True))
