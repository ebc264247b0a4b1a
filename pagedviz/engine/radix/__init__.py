"""SGLang's prefix cache by itself, a world of its own: a radix tree over pages of slots."""
