"""Sizes read from headers: real images, sounds and videos, whole, turned, cut short and corrupt."""

import json
import struct
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile, ImageOps

from balancer.errors import ArgumentError, SampleError
from balancer.probing import MediaFiles, probe, read_header
from balancer.probing.wholeness import missing_end
from balancer.sizing.tables import SizeColumns, table_from_arrow

av = pytest.importorskip("av")


def _pixels(height: int, width: int, seed: int = 0) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 255, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(values)


def _encoded(format_name: str, height: int = 60, width: int = 80, **options: object) -> bytes:
    file = BytesIO()
    _pixels(height, width).save(file, format_name, **options)
    return file.getvalue()


def _movie(path: Path, *, frames: int, fps: int, codec: str) -> Path:
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=fps)
        stream.height, stream.width, stream.pix_fmt = 48, 64, "yuv420p"
        for index in range(frames):
            frame = av.VideoFrame.from_ndarray(np.asarray(_pixels(48, 64, index)), format="rgb24")
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def _sound(path: Path, seconds: float) -> Path:
    samples = np.zeros(int(seconds * 8000), np.int16).tobytes()
    header = struct.pack("<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16,
                         1, 1, 8000, 16000, 2, 16, b"data", len(samples))  # fmt: skip
    path.write_bytes(header + samples)
    return path


@pytest.fixture
def no_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(self: ImageFile.ImageFile) -> None:
        raise AssertionError("an image was decoded")

    monkeypatch.setattr(ImageFile.ImageFile, "load", load)
    monkeypatch.setattr("PIL.PngImagePlugin.PngImageFile.load", load)
    monkeypatch.setattr("PIL.TiffImagePlugin.TiffImageFile.load", load)


@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF", "GIF", "BMP"])
def test_an_image_has_its_size_without_being_decoded(
    format_name: str, tmp_path: Path, no_decoding: None
) -> None:
    path = tmp_path / f"a.{format_name.lower()}"
    path.write_bytes(_encoded(format_name))
    files = probe(path, progress=False)
    assert (files.heights.tolist(), files.widths.tolist()) == ([60], [80])
    assert files.formats[0].startswith(format_name)
    assert files.encoded_bytes.tolist() == [path.stat().st_size]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format_name", ["JPEG", "PNG", "WEBP", "TIFF"])
def test_height_and_width_are_those_shown(format_name: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    encoded = _encoded(format_name, exif=exif)
    header = read_header(BytesIO(encoded), kind="image")
    shown = ImageOps.exif_transpose(Image.open(BytesIO(encoded)))
    assert (header.width, header.height) == shown.size


@pytest.mark.parametrize(
    ("format_name", "options"),
    [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {}), ("WEBP", {"lossless": True})],
)
def test_any_cut_that_breaks_decoding_is_seen(format_name: str, options: dict[str, object]) -> None:
    whole = _encoded(format_name, **options)
    assert read_header(BytesIO(whole), kind="image").fault == ""
    assert read_header(BytesIO(whole + b"\0" * 9000), kind="image").fault == ""
    for cut in (1, 2, 13, 400, len(whole) // 2, len(whole) - 40):
        try:
            fault = read_header(BytesIO(whole[:-cut]), kind="image").fault
        except ArgumentError:
            continue  # the header itself is cut
        assert fault, f"{cut} bytes short"


def test_a_thumbnail_does_not_pass_for_the_end_of_a_cut_image() -> None:
    thumbnail = b"Exif\0\0" + _encoded("JPEG", 8, 8)
    whole = _encoded("JPEG", 200, 200, exif=thumbnail)
    assert whole.count(b"\xff\xd9") >= 2
    assert missing_end(BytesIO(whole[:-500]), len(whole) - 500)


def test_a_video_has_frames_rate_and_size(tmp_path: Path) -> None:
    paths = [
        _movie(tmp_path / "a.mp4", frames=25, fps=10, codec="mpeg4"),
        _movie(tmp_path / "b.mkv", frames=25, fps=10, codec="mpeg4"),
    ]
    files = probe(paths, progress=False)
    assert files.kinds.tolist() == ["video", "video"]
    assert files.frames.tolist() == [25, 25]
    assert files.fps.tolist() == [10.0, 10.0]
    np.testing.assert_allclose(files.seconds, 2.5, atol=0.11)
    assert files.heights.tolist() == [48, 48]
    assert files.widths.tolist() == [64, 64]


def test_a_sound_has_its_seconds(tmp_path: Path) -> None:
    files = probe(_sound(tmp_path / "a.wav", 1.25), progress=False)
    assert files.seconds.tolist() == [1.25]
    assert files.to_table().audio_seconds.tolist() == [1.25]


@pytest.mark.parametrize("name", ["a.wav", "a.mp4", "a.mkv"])
def test_a_container_cut_short_is_at_fault(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if name == "a.wav":
        _sound(path, 2.0)
    else:
        _movie(path, frames=30, fps=10, codec="mpeg4")
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(SampleError, match=name):
        probe(path, progress=False)


def test_every_demo_file_has_the_size_on_record(shared_data: Path) -> None:
    demo = shared_data / "demo"
    files = probe(demo, progress=False)
    assert files.counts() == {"given": 224, "read": 224, "estimated": 0, "skipped": 0}
    row = {str(Path(path).relative_to(demo)): i for i, path in enumerate(files.paths)}
    num_items = 0
    for line in (demo / "samples.jsonl").read_text().splitlines():
        for item in json.loads(line)["content"]:
            if item["type"] == "image":
                at = row[item["image"]]
                size = (files.heights[at], files.widths[at], files.encoded_bytes[at])
                assert size == (item["height"], item["width"], item["bytes"])
                assert files.formats[at].startswith(item["format"])
            elif item["type"] == "audio":
                assert files.seconds[row[item["audio"]]] == pytest.approx(item["seconds"], abs=1e-3)
            num_items += item["type"] != "text"
    assert num_items == 227


def _write_faulty(folder: Path) -> list[Path]:
    """Two whole images, one of them cut, one of noise, an empty one, and one not there."""
    whole = _encoded("JPEG")
    contents = {"a.jpg": whole, "b.jpg": _encoded("JPEG", 100, 20), "cut.jpg": whole[:-300],
                "noise.png": b"no image at all", "empty.webp": b""}  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return [folder / name for name in (*contents, "gone.jpg")]


@pytest.mark.parametrize("num_workers", [0, 3])
def test_all_files_at_fault_are_named_at_once(num_workers: int, tmp_path: Path) -> None:
    paths = _write_faulty(tmp_path)
    with pytest.raises(SampleError) as raised:
        probe(paths, num_workers=num_workers, progress=False)
    assert raised.value.sample_ids == (2, 3, 4, 5)
    for word in ("4 of 6", "cut.jpg: truncated", "noise.png", "empty.webp", "gone.jpg", "on_error"):
        assert word in str(raised.value)


def test_skipped_files_have_no_row_and_are_counted(tmp_path: Path) -> None:
    files = probe(_write_faulty(tmp_path), on_error="skip", progress=False)
    assert files.rows.tolist() == [0, 1]
    assert files.counts() == {"given": 6, "read": 2, "estimated": 0, "skipped": 4}
    assert [row for row, _, _ in files.faults] == [2, 3, 4, 5]


def test_estimates_are_the_own_header_or_the_medians(tmp_path: Path) -> None:
    files = probe(_write_faulty(tmp_path), on_error="estimate", progress=False)
    assert files.counts() == {"given": 6, "read": 2, "estimated": 4, "skipped": 0}
    assert files.heights[:3].tolist() == [60, 100, 60]
    assert files.heights[3:].tolist() == [60, 60, 60]  # median of 60, 100 and the cut one's 60
    assert files.estimated.tolist() == [False, False, True, True, True, True]


def test_nothing_readable_leaves_nothing_to_estimate_from(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"noise")
    with pytest.raises(SampleError, match=r"nothing to estimate from.*a\.png"):
        probe(tmp_path, on_error="estimate", progress=False)


def _mixed(folder: Path) -> MediaFiles:
    (folder / "a.jpg").write_bytes(_encoded("JPEG", 30, 40))
    (folder / "b.png").write_bytes(_encoded("PNG", 50, 60))
    paths = [folder / "a.jpg", _sound(folder / "c.wav", 0.5), folder / "b.png"]
    return probe(paths, progress=False)


def test_files_are_gathered_into_their_samples(tmp_path: Path) -> None:
    table = _mixed(tmp_path).to_table(samples=[2, 0, 2], text_tokens=[5, 6, 7])
    assert table.num_images.tolist() == [0, 0, 2]
    assert table.image_heights.tolist() == [30, 50]
    assert table.audio_seconds.tolist() == [0.5]
    assert table.text_tokens.tolist() == [5, 6, 7]


def test_arrow_columns_are_those_that_tables_read(tmp_path: Path) -> None:
    files = _mixed(tmp_path)
    table = table_from_arrow(files.to_arrow(), SizeColumns())
    assert table.fingerprint == files.to_table().fingerprint


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda folder: probe(folder, progress=False), "has no media files"),
        (lambda folder: probe([], progress=False), "paths is empty"),
        (lambda folder: probe([folder / "a.txt"], progress=False), r"a\.txt.*no known kind"),
        (lambda folder: probe(folder, on_error="drop", progress=False), "on_error is 'drop'"),
        (lambda folder: probe(folder / "a.png", num_workers=-1), "num_workers is -1"),
    ],
)
def test_bad_arguments_are_told(
    call: Callable[[Path], MediaFiles], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(tmp_path)
