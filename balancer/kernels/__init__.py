"""Every compiled function: arrays in, arrays out, serial, without errors or validation.

Arrays are one-dimensional and contiguous, int64 or float64; the modules that call these kernels
check what users give. Kernels compile at their first call and release the GIL while they run.
"""
