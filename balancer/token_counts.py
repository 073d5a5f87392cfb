"""TokenCounts: patches and tokens of every sample of a table under a token rule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.sample_media import sum_by_sample, table_media
from balancer.samples import SampleTable
from balancer.tokens import TokenRule

__all__ = ["TokenCounts", "token_counts"]

_INT = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenCounts:
    """Counts of each sample, int64 `(num_samples,)`; 0 where the rule refuses the sample.

    Attributes:
        text_tokens: Tokens of its text.
        media_tokens: Tokens that its media become in the language model.
        patches: Encoder patches of its media.
        images: Images.
        refused: Ids of the samples with media that the rule does not take, rising.
        why: Message for the first of them; empty where there are none.
    """

    text_tokens: _INT
    media_tokens: _INT
    patches: _INT
    images: _INT
    refused: _INT
    why: str

    def __len__(self) -> int:
        return len(self.text_tokens)

    @property
    def tokens(self) -> _INT:
        """Language-model tokens: text and media."""
        return self.text_tokens + self.media_tokens


def token_counts(table: SampleTable, rule: TokenRule) -> TokenCounts:
    """Counts of every sample; samples that the rule refuses are named, not raised.

    Example:
        >>> from balancer.tokens import token_rule
        >>> table = SampleTable.from_arrays(
        ...     text_tokens=[5, 6], image_heights=[[480], [1]], image_widths=[[640], [900]])
        >>> counts = token_counts(table, token_rule("qwen2.5-vl"))
        >>> counts.tokens, counts.refused
        (array([396,   0]), array([1]))
    """
    media, num = table_media(table, rule), len(table)
    legal = np.ones(num, np.bool_)
    legal[media.illegal] = False
    counts = np.zeros((2, num))
    for owners, items in ((media.visual_owners, media.visual), (media.clip_owners, media.clips)):
        counts[0] += sum_by_sample(owners, items.tokens, num)
        counts[1] += sum_by_sample(owners, items.patches, num)
    media_tokens, patches = np.where(legal, counts, 0).astype(np.int64)
    return TokenCounts(
        text_tokens=np.where(legal, table.text_tokens, 0),
        media_tokens=media_tokens,
        patches=patches,
        images=np.where(legal, table.num_images, 0),
        refused=media.illegal,
        why=media.illegal_because,
    )
