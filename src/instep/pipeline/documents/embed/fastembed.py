"""Vectors from a model in ONNX that runs in this process, through the library fastembed."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from instep.domain.fingerprint import digest
from instep.errors import UserError
from instep.pipeline.documents.embed.embedder import as_list

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Texts, Vectors

Pooling = Literal["mean", "cls", "last_token", "disabled"]

#: Texts that the model sees at once: they are padded to the longest of them.
_AT_ONCE: Final = 32

#: Seconds that the place of models has for its first answer.
_ANSWER: Final = 10.0


@dataclass(frozen=True)
class FastembedEmbedder:
    """Embeds by a model of fastembed. `model` is a name that fastembed knows, or a folder; it is loaded once per
    process, at the first text. `prompt` stands before each text. `pooling` is that of a folder's model; fastembed knows
    that of its own.
    """

    model: str
    dimensions: int
    prompt: str = ""
    pooling: Pooling = "mean"
    batch: int = 256

    @property
    def fingerprint(self) -> str:
        try:
            library = version("fastembed")
        except PackageNotFoundError:
            library = ""
        # Patch releases do not change vectors; a rebuild costs too much to ask for it each time.
        release = ".".join(library.split(".")[:2])
        folder = Path(self.model)
        named = [_content(folder), self.pooling] if folder.is_dir() else [self.model]
        prompt = [self.prompt] if self.prompt else []
        return digest(["fastembed", release, *named, self.dimensions, *prompt])

    @property
    def cached(self) -> bool:
        return True

    def embed(self, texts: Texts) -> Vectors:
        import numpy as np

        plain = [self.prompt + each for each in as_list(texts)]
        if not plain:
            return np.zeros((0, self.dimensions), np.float32)
        made = _model(self.model, self.pooling).embed(plain, batch_size=_AT_ONCE)
        return np.stack([np.asarray(each, np.float32) for each in made])


def tokenizer_of(name: str) -> Any:
    """The model's tokenizer, of the library tokenizers."""
    return _model(name, "mean").model.tokenizer


def _content(folder: Path) -> str:
    """A digest of what the folder's files say, whatever the folder is called."""
    files = sorted(each for each in folder.rglob("*") if each.is_file())
    return _hashed(folder, tuple((str(each.relative_to(folder)), each.stat().st_mtime_ns) for each in files))


@functools.lru_cache(maxsize=4)
def _hashed(folder: Path, files: tuple[tuple[str, int], ...]) -> str:
    """Hash the files of a model, once per process for files of the same age: a large model takes time."""
    try:
        return digest([each for name, _ in files for each in (name, _of_file(folder / name))])
    except OSError as error:
        raise UserError(
            f"the model's folder cannot be read: {error.strerror}", where=str(folder), hint="Check `model`."
        ) from error


def _of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@functools.lru_cache(maxsize=2)
def _model(name: str, pooling: Pooling) -> Any:
    try:
        from fastembed import TextEmbedding
    except ImportError:
        raise UserError("the package fastembed is not installed", hint="Run: pip install 'instep[fastembed]'") from None
    folder = Path(name)
    known = [str(each["model"]) for each in TextEmbedding.list_supported_models()]
    if not folder.is_dir() and name.lower() not in map(str.lower, known):
        raise UserError(
            f"fastembed knows no model {name!r}, and there is no such folder",
            hint=f"Name a folder, or one of its models, such as {', '.join(known[:3])}.",
        )
    try:
        return _of_folder(folder, pooling) if folder.is_dir() else _of_name(name)
    except UserError:
        raise
    except Exception as error:  # Its own errors, those of onnxruntime and of the download have no class in common.
        hint = "Check the folder under `embed`." if folder.is_dir() else _DOWNLOAD
        raise UserError(f"model {name!r} cannot be loaded: {type(error).__name__}", hint=hint) from error


def _of_name(name: str) -> Any:
    """The model of this name, kept here or downloaded."""
    from fastembed import TextEmbedding
    from huggingface_hub import HfApi
    from loguru import logger

    logger.disable("fastembed")
    try:
        return TextEmbedding(name, local_files_only=True)
    except Exception:  # It is not here. Its own download takes a minute to find out that there is no way.
        described = [each for each in TextEmbedding.list_supported_models() if each["model"].lower() == name.lower()]
        HfApi().model_info(described[0]["sources"]["hf"], timeout=_ANSWER)
        return TextEmbedding(name)


_DOWNLOAD: Final = (
    "It is downloaded from Hugging Face at first. Where that cannot be reached, copy the model's folder here, and name "
    "the folder as `model` under `embed`."
)


def _of_folder(folder: Path, pooling: Pooling) -> Any:
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    found = sorted(str(each.relative_to(folder)) for each in folder.rglob("*.onnx"))
    if not found:
        raise UserError("there is no model in ONNX", where=str(folder), hint="Name a folder with a file *.onnx in it.")
    named = f"{folder.resolve()}#{pooling}"
    if named not in (each["model"] for each in TextEmbedding.list_supported_models()):
        TextEmbedding.add_custom_model(
            model=named,
            pooling=PoolingType[pooling.upper()],
            normalization=True,
            sources=ModelSource(url="file:"),
            dim=0,
            model_file=min(found, key=lambda each: (Path(each).name != "model.onnx", each)),
        )
    return TextEmbedding(named, specific_model_path=str(folder))
