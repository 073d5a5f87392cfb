"""`python -m balancer`: the same as the `balancer` command."""

from balancer.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
