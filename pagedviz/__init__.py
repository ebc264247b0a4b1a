"""pagedviz: watch a token find its block in a real paged KV cache."""
