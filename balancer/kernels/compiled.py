"""How kernels are compiled: one decorator for all of them."""

from numba import njit

__all__ = ["inlined", "kernel"]


def kernel(function):
    """Compile a function on its first call, serial and without the interpreter's lock.

    Kernels are never called from C and have no loops to lift out of Python code; leaving both out
    saves about an eighth of the time of compiling.
    """
    return njit(nogil=True, no_cfunc_wrapper=True, looplift=False)(function)


def inlined(function):
    """A kernel that becomes part of each kernel that calls it.

    For small ones in innermost loops: handing over half a dozen arrays takes longer than they do.
    """
    return njit(nogil=True, no_cfunc_wrapper=True, looplift=False, forceinline=True)(function)
