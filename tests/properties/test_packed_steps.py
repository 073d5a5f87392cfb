"""What the microbatches of a whole step add up to, and what a packed row keeps apart."""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import Qwen2Config, Qwen2ForCausalLM

from balancer.cost import Costs
from balancer.plan import Flag
from balancer.planner import EpochPlanner
from balancer.topology import Topology
from loaders.collate import PackedCollator, PaddedCollator
from loaders.microbatch import SampleList
from loaders.sampler import BalancedBatchSampler

VOCABULARY = 32
COLLATORS = [PackedCollator(), PackedCollator(pad_sample_to=4), PaddedCollator(pad_token_id=0)]
texts = st.lists(st.integers(1, VOCABULARY - 1), min_size=1, max_size=9)


@given(
    st.lists(texts, min_size=6, max_size=20), st.integers(1, 3), st.integers(1, 2),
    st.sampled_from(["drop", "pad", "filler"]), st.sampled_from(COLLATORS),
)  # fmt: skip
def test_the_weights_of_a_step_add_up_to_one(samples, dp_size, num_slots, tail, collator):
    """I19: of all tokens with a loss, and of all samples with one, on average over the ranks."""
    lengths = [len(ids) for ids in samples]
    costs = Costs.from_values(lengths, tokens=lengths, target_tokens=[n - 1 for n in lengths])
    topology = Topology(dp_size=dp_size, num_microbatches=num_slots)
    planner = EpochPlanner(costs, topology, global_batch_size=6, tail=tail, effort="fast")
    tokens = np.zeros(planner.num_steps)
    means = np.zeros(planner.num_steps)
    counted = np.zeros(planner.num_steps)
    for ids in BalancedBatchSampler(planner):
        batch = collator(SampleList([{"input_ids": samples[i]} for i in ids], ids.facts))
        step, flags = ids.facts.step, batch["sample_flags"].numpy()
        targets = np.array([lengths[i] - 1 for i in ids]) * (flags != Flag.FILLER)
        counted[step] += targets.sum()
        tokens[step] += batch["loss_scale"] * targets.sum() / dp_size
        means[step] += (batch["sample_loss_scales"].numpy() * targets).sum() / dp_size
    assert np.allclose(tokens, counted > 0, rtol=1e-12)
    assert np.allclose(means, counted > 0, rtol=1e-12)


def packed_logits(model, samples, collator):
    """Logits of each sample from one packed row; attention knows the row by its positions."""
    batch = collator([{"input_ids": ids} for ids in samples])
    logits = model(
        input_ids=batch["input_ids"], position_ids=batch["position_ids"], use_cache=False
    ).logits[0]
    places = batch["sequence_ids"][0]
    return [logits[places == k] for k in range(len(samples))]


@settings(max_examples=15)
@given(st.lists(texts, min_size=2, max_size=5), st.data(), st.sampled_from([1, 4]))
def test_no_sample_of_a_pack_sees_another(samples, data, pad_sample_to):
    """I20: a published decoder gives a sample the logits it has alone, whatever stands beside it.

    Qwen2 of Transformers, of two small layers in float64.
    """
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY, hidden_size=16, intermediate_size=32, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).to(torch.float64).eval()
    collator = PackedCollator(pad_sample_to=pad_sample_to)
    changed = data.draw(st.integers(0, len(samples) - 1))
    other = [*samples]
    other[changed] = data.draw(texts.filter(lambda ids: ids != samples[changed]))
    with torch.no_grad():
        before, after = (packed_logits(model, each, collator) for each in (samples, other))
        alone = [model(input_ids=torch.tensor([ids]), use_cache=False).logits[0] for ids in samples]
    for k, logits in enumerate(before):
        torch.testing.assert_close(logits, alone[k], rtol=1e-9, atol=1e-12)
        if k != changed:
            torch.testing.assert_close(after[k], logits, rtol=1e-9, atol=1e-12)
