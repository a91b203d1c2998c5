"""A retriever for LlamaIndex: `InstepRetriever("notes", where="team = 'ops'").retrieve("printer on fire")`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Final, Unpack

from instep.errors import UserError

if find_spec("llama_index") is None or find_spec("llama_index.core") is None:
    raise UserError("the retriever for LlamaIndex needs llama-index-core", hint="pip install 'instep[llama-index]'")

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode

from instep.answers.search import Hit
from instep.retrievers.hits import Options, Place, demand_options, metadata_of, opened

#: The metadata that say something to a language model, which LlamaIndex hands them with the text.
_TOLD: Final = frozenset(("title", "source_uri"))


class InstepRetriever(BaseRetriever):
    """The chunks that a project serves, best first, each as a node with its score. `project` is an open one, its file
    or its folder. The rest is as in `Instep.search`.
    """

    def __init__(
        self, project: Place, *, callback_manager: CallbackManager | None = None, **options: Unpack[Options]
    ) -> None:
        demand_options(options)
        super().__init__(callback_manager)
        instep = opened(project)
        self._search = partial(instep.search, **options)
        self._asearch = partial(instep.asearch, **options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(self._search(query_bundle.query_str))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return _nodes(await self._asearch(query_bundle.query_str))


def _nodes(hits: Sequence[Hit]) -> list[NodeWithScore]:
    return [NodeWithScore(node=_node(hit), score=hit.score) for hit in hits]


def _node(hit: Hit) -> TextNode:
    metadata = metadata_of(hit)
    hidden = [name for name in metadata if name not in _TOLD]
    return TextNode(
        id_=hit.chunk_id,
        text=hit.text,
        metadata=metadata,
        excluded_llm_metadata_keys=hidden,
        excluded_embed_metadata_keys=hidden,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=hit.document_id)},
    )
