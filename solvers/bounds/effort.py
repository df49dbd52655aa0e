"""How much a verifier may do: counted, so that a verdict depends on no clock, and a hostile file takes bounded time."""

from __future__ import annotations

from collections.abc import Callable


class TooLargeError(Exception):
    """A proof takes more than its verifier gives it; the message says of what."""


class Effort:
    """What may still be done, in numbers looked at.

    Parameters
    ----------
    left
        So many.
    go_on
        Asked now and then, for those who have a clock: whether there is time left.
    """

    def __init__(self, left: int, go_on: Callable[[], bool] = lambda: True) -> None:
        self.left, self._go_on = left, go_on

    def spend(self, numbers: int) -> None:
        """Count what is about to be done.

        Raises
        ------
        TooLargeError
            If it is more than is left.
        """
        self.left -= numbers
        if self.left < 0:
            raise TooLargeError("too many states")
        if not self._go_on():
            raise TooLargeError("time is short")
