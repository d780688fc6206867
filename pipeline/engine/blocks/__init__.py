"""Which block size of the KV cache suits a stream of requests: its format, vLLM's own block manager fed with it, and
the choice among the sizes that an attention backend takes. Importing it imports neither torch nor vLLM."""
