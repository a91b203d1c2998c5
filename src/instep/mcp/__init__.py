"""The server of `instep mcp`: agents ask the project by the Model Context Protocol."""
