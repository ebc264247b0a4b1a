"""SGLang's prefix cache: a radix tree over pages of slots. It does not use the block manager."""
