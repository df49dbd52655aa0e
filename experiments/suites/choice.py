"""What a person may choose: suites, and who pays for a magazine's first filling."""

from __future__ import annotations

from enum import StrEnum


class Suite(StrEnum):
    """A family of instances.

    Attributes
    ----------
    HEFT
        The ten tasks on three processors that HEFT was presented with.
    ASYNC_HOW
        Plans of AsyncHow with a GPU per step: the longest path.
    FLEXIBLE_JOB_SHOP
        Brandimarte's and Fattahi's flexible job shops.
    PARALLEL_MACHINES
        P||Cmax.
    TRIPLETS
        Bin packing in which every bin is filled by three items.
    PAGING
        A fixed order of requests on one GPU, against Belady.
    TOOL_SWITCHING
        Jobs and tools on identical machines.
    """

    HEFT = "heft"
    ASYNC_HOW = "asynchow"
    FLEXIBLE_JOB_SHOP = "fjsp"
    PARALLEL_MACHINES = "pcmax"
    TRIPLETS = "triplets"
    PAGING = "paging"
    TOOL_SWITCHING = "tool-switching"


class FirstFilling(StrEnum):
    """Whether the tools that a machine starts with cost their loads, or nothing, or both in turn."""

    PAID = "paid"
    FREE = "free"
    BOTH = "both"
