"""Where samples come from: tar shards and folders, read as bytes and decoded by another stage.

```text
TarDataset, FolderDataset ─► {"__id__", "__key__", "__url__", "jpg": bytes, ...} ─► decode_image
```

Each is a map-style dataset for `BalancedDataLoader`, the work of a `read` stage by its
`__getitem__`, and gives sizes from headers alone. Rows of Parquet files are in `loaders.parquet`.
"""

from loaders.sources.byte_cache import ByteCache
from loaders.sources.folder import FolderDataset
from loaders.sources.images import decode_image
from loaders.sources.tar import TarDataset

__all__ = ["ByteCache", "FolderDataset", "TarDataset", "decode_image"]
