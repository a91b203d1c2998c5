"""Retrievers for LangChain and LlamaIndex: they search the served indexes."""
