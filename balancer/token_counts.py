"""TokenCounts: patches and tokens of every sample of a table under a token rule."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from balancer.errors import SampleError
from balancer.sample_media import audio_media, sum_by_sample, visual_media
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
    refused: _INT = np.zeros(0, np.int64)
    why = ""
    rows: _INT = np.arange(len(table))
    while True:
        try:
            counted = [count(table.select(rows), rule) for count in (visual_media, audio_media)]
            break
        except SampleError as error:
            why = why or str(error).split("; samples with such media")[0]
            refused = np.union1d(refused, rows[list(error.sample_ids)])
            rows = np.setdiff1d(np.arange(len(table)), refused)
    columns = np.zeros((4, len(table)), np.int64)
    columns[0, rows], columns[3, rows] = table.text_tokens[rows], table.num_images[rows]
    for owners, media in counted:
        columns[1, rows] += sum_by_sample(owners, media.tokens, len(rows)).astype(np.int64)
        columns[2, rows] += sum_by_sample(owners, media.patches, len(rows)).astype(np.int64)
    text, tokens, patches, images = columns
    return TokenCounts(
        text_tokens=text, media_tokens=tokens, patches=patches, images=images,
        refused=refused, why=why,
    )  # fmt: skip
