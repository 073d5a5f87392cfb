"""Parts of `balancer.calibrate`: amounts, measurements, the fit, its checks and its result."""
