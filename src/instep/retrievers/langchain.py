"""A retriever for LangChain: `InstepRetriever(project="notes", where="team = 'ops'").invoke("printer on fire")`."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Unpack

from instep.errors import UserError

if find_spec("langchain_core") is None:
    raise UserError("the retriever for LangChain needs langchain-core", hint="pip install 'instep[langchain]'")

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from pydantic import PrivateAttr, model_validator

from instep.app import Instep
from instep.retrievers.hits import Options, Place, demand_options, metadata_of, opened
from instep.targets.document_target import SearchMode


class InstepRetriever(BaseRetriever):
    """The chunks that a project serves, best first, each as a document. `project` is an open one, its file or its
    folder. The rest is as in `Instep.search`, and may be said in each call, too: `invoke(query, limit=3)`.
    """

    project: Place
    mode: SearchMode | None = None
    limit: int = 10
    where: str | None = None
    group: bool = False
    entities: str | Sequence[str] | None = None
    principals: str | Sequence[str] = ()
    generation: str | None = None
    target: str | None = None

    _opened: Instep = PrivateAttr()

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: Any) -> Any:
        if isinstance(given, dict):
            demand_options(given, also=cls.model_fields)
        return given

    def model_post_init(self, context: Any, /) -> None:
        """Open the project."""
        self._opened = opened(self.project)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **options: Unpack[Options]
    ) -> list[Document]:
        demand_options(options)
        hits = self._opened.search(query, **{**self._options, **options})
        return [Document(page_content=hit.text, id=hit.chunk_id, metadata=metadata_of(hit)) for hit in hits]

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **options: Unpack[Options]
    ) -> list[Document]:
        demand_options(options)
        hits = await self._opened.asearch(query, **{**self._options, **options})
        return [Document(page_content=hit.text, id=hit.chunk_id, metadata=metadata_of(hit)) for hit in hits]

    @property
    def _options(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in Options.__annotations__}
