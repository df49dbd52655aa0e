"""The processes of a run on several GPUs: each computes its part, and what they have found is added up over all.

They meet by a number that the head gives out, in memory that all have from the process that they are forks of. Once one
of them has left, by an error or since it was ended, the others learn of it where they wait for it, and the head gives
out another number: nothing goes on with what was left half done.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor
from torch.distributed import FileStore, PrefixStore  # type: ignore[attr-defined]

from truenorth.executor.devices.cuda import Group
from truenorth.executor.devices.physical import Physical
from truenorth.executor.errors import DeviceError


class Team:
    """The processes of a place, as one of them sees them.

    Parameters
    ----------
    rank, size
        Which this one is, and how many there are.
    group
        What torch has of them.
    """

    def __init__(self, rank: int, size: int, group: Group) -> None:
        self.rank, self.size = rank, size
        self._group: Group | None = group

    def add_up(self, tensor: Tensor) -> Tensor:
        """Put the sum over all members in place of what each has; all of them ask for it, in the same order.

        Raises
        ------
        DeviceError
            If one of them has left.
        """
        if self._group is None:
            raise DeviceError("it has left the GPUs that it ran on with others")
        try:
            self._group.allreduce([tensor]).wait()
        except torch.AcceleratorError:
            raise
        except RuntimeError:
            raise DeviceError("another of the GPUs that it ran on has left the run") from None
        return tensor

    def leave(self) -> None:
        """Close what leads to the others, so that whoever waits for this one learns of it."""
        self._group = None


class Teams:
    """The teams that a process belongs to, one per place; whoever forks processes makes it beforehand, for all."""

    def __init__(self) -> None:
        self._meeting = os.memfd_create("teams")
        self._of: dict[int, tuple[int, Team]] = {}

    def join(self, place: int, number: int, rank: int, size: int, physical: Physical) -> Team:
        """Return the team of a place with a number; the first time, wait for all others to do the same.

        Raises
        ------
        DeviceError
            If they do not find one another.
        """
        known, team = self._of.get(place, (None, None))
        if team is not None and known == number:
            return team
        self.leave(place)
        meeting = FileStore(f"/proc/self/fd/{self._meeting}", -1)
        try:
            group = physical.group(PrefixStore(str(number), meeting), rank, size)
        except torch.AcceleratorError:
            raise
        except RuntimeError as error:
            said = str(error).partition("\n")[0]
            raise DeviceError(f"{physical.name} does not reach those that it is to run with: {said}") from None
        team = Team(rank, size, group)
        self._of[place] = number, team
        return team

    def leave(self, place: int) -> None:
        """Leave the team of a place, if there is one."""
        _, team = self._of.pop(place, (0, None))
        if team is not None:
            team.leave()
