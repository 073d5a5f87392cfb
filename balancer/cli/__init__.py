"""Command line: one module a command; `balancer.cli.main` joins them."""
