"""trainhost: predicts the memory of an LLM training run to the byte, trains it, and compares."""
