"""A tiny BERT in GGUF, made here: its layers add nothing, so its vectors are known without it."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

WORDS = ["printer", "paper", "jam", "harbour", "tide"]
_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
DIMENSIONS = 32
#: Tokens of a text, with the two around it.
CONTEXT = 64
_EPSILON = 1e-12


def write(path: Path) -> None:
    made = gguf.GGUFWriter(path, "bert")
    made.add_block_count(1)
    made.add_context_length(CONTEXT)
    made.add_embedding_length(DIMENSIONS)
    made.add_feed_forward_length(DIMENSIONS)
    made.add_head_count(1)
    made.add_layer_norm_eps(_EPSILON)
    made.add_causal_attention(False)
    made.add_pooling_type(gguf.PoolingType.MEAN)
    made.add_tokenizer_model("bert")
    made.add_token_type_count(1)
    made.add_token_list([*_SPECIAL, *(f"▁{word}" for word in WORDS)])
    kinds = gguf.TokenType
    made.add_token_types([kinds.CONTROL, kinds.UNKNOWN, kinds.CONTROL, kinds.CONTROL, *[kinds.NORMAL] * len(WORDS)])
    made.add_pad_token_id(0)
    made.add_unk_token_id(1)
    made.add_bos_token_id(2)
    made.add_sep_token_id(3)
    nothing = np.zeros((DIMENSIONS, DIMENSIONS), np.float32)
    made.add_tensor("token_embd.weight", _words())
    made.add_tensor("position_embd.weight", np.zeros((CONTEXT, DIMENSIONS), np.float32))
    made.add_tensor("token_types.weight", nothing[:1])
    for norm in ("token_embd_norm", "blk.0.attn_output_norm", "blk.0.layer_output_norm"):
        made.add_tensor(f"{norm}.weight", np.ones(DIMENSIONS, np.float32))
        made.add_tensor(f"{norm}.bias", nothing[0])
    for layer in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down"):
        made.add_tensor(f"blk.0.{layer}.weight", nothing)
        made.add_tensor(f"blk.0.{layer}.bias", nothing[0])
    made.write_header_to_file()
    made.write_kv_data_to_file()
    made.write_tensors_to_file()
    made.close()


def vector(text: str) -> list[float]:
    """The model's vector of a text of plain words: the mean of its tokens, of length 1."""
    names = [*_SPECIAL, *WORDS]
    tokens = ["[CLS]", *(word if word in WORDS else "[UNK]" for word in text.split()), "[SEP]"]
    mean = _normal(_words()[[names.index(each) for each in tokens]].astype(np.float64)).mean(axis=0)
    return [float(each) for each in mean / np.linalg.norm(mean)]


def _words() -> np.ndarray:
    return np.random.default_rng(7).normal(size=(len(_SPECIAL) + len(WORDS), DIMENSIONS)).astype(np.float32)


def _normal(rows: np.ndarray) -> np.ndarray:
    """Normalised layer by layer; the second and third time change nothing."""
    made: np.ndarray = (rows - rows.mean(axis=1, keepdims=True)) / np.sqrt(rows.var(axis=1, keepdims=True) + _EPSILON)
    return made
