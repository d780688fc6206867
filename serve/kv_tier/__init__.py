"""KV cache tiers behind the engine's own prefix cache: a pool in host memory (DRAM) and files on a disk.

vLLM's OffloadingConnector moves whole blocks of prompts between the engine's cache and the pool, and its tiering
manager moves them between the pool and further tiers. Here are the disk tier (`disk_tier`, on CPU and GPU), with a
quota, checked files and a root for each version of the weights, and the copying that vLLM has for GPUs only
(`host_spec`).

`naming`, `block_file`, `quota`, `block_store`, `janitor`, `weights_mark`, `arguments` and `checks` know no vLLM.
"""
