"""Tests of planner.inputs."""
