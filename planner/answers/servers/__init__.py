"""The least number of servers, or the cheapest mix, that meets a service level: proved where the bounds allow it."""

from planner.answers.servers.answer import ServersAnswer

__all__ = ["ServersAnswer"]
