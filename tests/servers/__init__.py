"""Real database servers for tests, without containers: each test process starts its own when it first needs one."""
