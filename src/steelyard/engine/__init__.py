"""The LLM engine: a Llama-family model on the CPU, many sequences at once, in a process of its own.

    checkpoint  what is on disk (gguf, huggingface) as one value: config, tensors, tokenizer, template
    tokenizer · chat · detokenize   text to ids and back; used by the replica, never by the engine process
    scheduler · sequence · cache    which tokens run in the next step and where their keys and values live
    batch · model · attention · sampler   one step: flat batch in, one token per row out
    core · loop · messages          the step as a unit, the process around it, and what crosses its socket

It knows nothing of HTTP, endpoints or replicas. Modules that the replica imports never import torch.
"""
