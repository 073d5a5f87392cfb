"""Benchmarks: how near to the bound each planner comes, and how long planning takes."""
