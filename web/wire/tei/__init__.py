"""Bodies as the clients of text-embeddings-inference write and read them: pure, JSON only."""
