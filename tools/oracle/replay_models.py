"""The replay of a case, or None for a model that has none yet."""
import replay_llama


def of(c):
    if c.lora:
        return None
    if c.family in replay_llama.FAMILIES:
        return replay_llama.Llama(c)
    return None
