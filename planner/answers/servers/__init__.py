"""The least number of servers, or the cheapest mix, that meets a service level: proved where the bounds allow it."""

from truenorth.planner.answers.servers.answer import ServersAnswer

__all__ = ["ServersAnswer"]
