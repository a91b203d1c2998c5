"""Tests of the retrievers for LangChain and LlamaIndex, each with the real library."""
