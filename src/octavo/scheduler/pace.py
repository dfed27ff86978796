"""`PromptPace`: how many tokens of prompts a step may carry while others wait for their next token, so that it takes about as
long as it should. Learned from what steps with prompts took:

    fit = prompt tokens of the step * wished seconds / its seconds

A step that took too long sets the number to its fit at once; a short one raises it to its fit, at most to twice what it was.
What a token costs grows with the context behind it, and this follows. It changes when tokens are computed, never which.
"""

from __future__ import annotations

LEAST_TOKENS = 16  # however slow: a prompt must come to its end


class PromptPace:
    def __init__(self, wished_s: float | None, most_tokens: int) -> None:
        """`wished_s` None: as many tokens as a step holds, `most_tokens`."""
        self.num_tokens = most_tokens
        self._most_tokens = most_tokens
        self._wished_s = wished_s

    def observe(self, num_prompt_tokens: int, seconds: float) -> None:
        """Take in how long a step took that computed so many tokens of prompts."""
        if self._wished_s is None or num_prompt_tokens < LEAST_TOKENS or seconds <= 0:
            return
        fit = int(num_prompt_tokens * self._wished_s / seconds)
        if seconds <= self._wished_s:
            fit = max(self.num_tokens, min(fit, 2 * self.num_tokens))
        self.num_tokens = max(LEAST_TOKENS, min(fit, self._most_tokens))
