"""What the API takes and answers, as pydantic models: the OpenAPI document is made of them."""
