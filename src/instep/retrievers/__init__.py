"""Retrievers: what is served, as LangChain and LlamaIndex ask for it."""
