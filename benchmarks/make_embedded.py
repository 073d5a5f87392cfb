"""Make balancer/data/mixture.parquet, the sizes that come with the package.

    python -m benchmarks.make_embedded ../shared/data/traces/mixture.parquet

Rule: of the rows without audio, every third one, the first 8,192. Sizes and counts only: no texts,
no ids of the original items. `source` is the position of the row's source in `SOURCES`.
"""

import argparse
from pathlib import Path

__all__ = ["SOURCES", "make_embedded"]

SOURCES = (
    "coco_captions_val2017",
    "dotnet_docs_desktop",
    "dotnet_docs_desktop_alt",
    "dotnet_docs_maui",
    "dotnet_docs_maui_alt",
    "ethereum_eips",
    "gimp_help",
    "gsm8k",
    "handson_ml3_notebooks",
    "iot_for_beginners",
    "llamafactory_alpaca_en_demo",
    "llamafactory_c4_demo",
    "llamafactory_glaive_toolcall_en_demo",
    "llamafactory_glaive_toolcall_zh_demo",
    "llamafactory_reason_tool_use",
    "llamafactory_wiki_demo",
    "mathvista_testmini",
    "next_oe",
    "openstax_figures",
    "powerquery_docs_alt",
    "skimage_docs",
    "tabmwp",
    "texlive_pdf_pages_144dpi",
)
_COLUMNS = (
    "text_tokens",
    "target_tokens",
    "image_heights",
    "image_widths",
    "image_bytes",
    "video_frames",
    "video_height",
    "video_width",
)
_NUM_ROWS, _STRIDE = 8192, 3


def make_embedded(trace: Path, out: Path) -> None:
    """Write the embedded sizes from the whole mixture trace."""
    import numpy as np
    import pyarrow
    from pyarrow import compute, parquet

    table = parquet.read_table(trace, columns=[*_COLUMNS, "source", "audio_seconds"])
    rows = np.flatnonzero(table["audio_seconds"].is_null().to_numpy())[::_STRIDE][:_NUM_ROWS]
    chosen = table.take(rows)
    codes = compute.index_in(chosen["source"], pyarrow.array(SOURCES)).cast(pyarrow.int8())
    chosen = chosen.select(_COLUMNS).append_column("source", codes)
    parquet.write_table(
        chosen.replace_schema_metadata(None), out, compression="zstd", compression_level=19
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--out", type=Path, default=Path("balancer/data/mixture.parquet"))
    arguments = parser.parse_args()
    make_embedded(arguments.trace, arguments.out)
