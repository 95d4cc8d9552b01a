"""Faults that change nothing that anyone could see, each with its reason."""

from __future__ import annotations

_SORTED = "the hashes are sorted, so all that follow are as large"
_TWICE = "the row with the limit itself is left out by the other of the two comparisons"
_MASKED = "what is above 64 bits is cut off by the mask, and multiplication carries only upwards"
_CHOSEN = (
    "chosen = np.flatnonzero(hashes < np.uint64(self.below)) if self.below < EVERYTHING else np.arange(len(hashes))"
)

EQUIVALENT: dict[tuple[str, str, str, str], str] = {
    ("sampling.py", "KeySample._keep", "break", "continue"): _SORTED,
    (
        "sampling.py",
        "KeySample.see",
        _CHOSEN,
        _CHOSEN.replace("<", "<=", 1),
    ): _TWICE,
    (
        "plain_lazy_cut.py",
        "key_hash",
        "state = (state ^ int.from_bytes(key[start:start + 8], 'little')) * _K2 & _MASK",
        "state = (state ^ int.from_bytes(key[start:], 'little')) * _K2 & _MASK",
    ): _MASKED,
    (
        "plain_lazy_cut.py",
        "key_hash",
        "state = (state ^ int.from_bytes(key[start:start + 8], 'little')) * _K2 & _MASK",
        "state = (state ^ int.from_bytes(key[start:start + 9], 'little')) * _K2 & _MASK",
    ): _MASKED,
}
