"""Parts of `balancer.monitor`: drift of times, shifts of the data, and online coefficients."""
