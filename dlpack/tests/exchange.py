"""The other side of tests/python.rs: NumPy takes a device's tensor, and gives a device one of its own."""

import ctypes
import gc
import sys
import time

import numpy

lib = ctypes.CDLL(sys.argv[1])
for function in (lib.capsule_produce, lib.capsule_produce_versioned):
    function.restype = ctypes.c_void_p
lib.capsule_double.argtypes = [ctypes.c_void_p]
lib.capsule_live.restype = ctypes.c_int64

api = ctypes.pythonapi
api.PyCapsule_New.restype = ctypes.py_object
api.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
api.PyCapsule_GetPointer.restype = ctypes.c_void_p
api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]

# Capsules keep the pointers of their names.
VERSIONED, USED, PLAIN = b"dltensor_versioned", b"used_dltensor_versioned", b"dltensor"


def soon(what, holds):
    """The device lets go of what it used when it gets to it."""
    end = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.001)


class Tensor:
    """What has a tensor of the device, as Python's protocol asks for it."""

    def __init__(self, name, produce):
        self.name, self.produce = name, produce

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return api.PyCapsule_New(self.produce(), self.name, None)


for tensor in (Tensor(VERSIONED, lib.capsule_produce_versioned), Tensor(PLAIN, lib.capsule_produce)):
    array = numpy.from_dlpack(tensor)
    assert array.shape == (2, 3) and array.dtype == numpy.float32, (array.shape, array.dtype)
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]], array
    assert lib.capsule_live() == 24, lib.capsule_live()
    part = array[1:, 1:]
    del array
    gc.collect()
    assert lib.capsule_live() == 24, "a view keeps the device's memory"
    assert part.tolist() == [[5, 6]], part
    del part
    gc.collect()
    assert lib.capsule_live() == 0, lib.capsule_live()

mine = numpy.arange(1024, dtype=numpy.float32).reshape(32, 32)
before = sys.getrefcount(mine)
capsule = mine.__dlpack__(max_version=(1, 0))
pointer = api.PyCapsule_GetPointer(capsule, VERSIONED)
assert sys.getrefcount(mine) == before + 1
# From here on the tensor is the device's.
api.PyCapsule_SetName(capsule, USED)
del capsule
assert lib.capsule_double(pointer) == 0
assert mine.ravel().tolist() == [2.0 * n for n in range(1024)], "doubled where it is"
soon("the deleter was called", lambda: sys.getrefcount(mine) <= before)
assert sys.getrefcount(mine) == before, "the deleter was called once"

fixed = numpy.arange(4, dtype=numpy.float32)
fixed.flags.writeable = False
capsule = fixed.__dlpack__(max_version=(1, 0))
pointer = api.PyCapsule_GetPointer(capsule, VERSIONED)
api.PyCapsule_SetName(capsule, USED)
before = sys.getrefcount(fixed)
assert lib.capsule_double(pointer) == 1, "what is read-only is refused"
assert sys.getrefcount(fixed) == before - 1
assert fixed.tolist() == [0, 1, 2, 3]
print("numpy", numpy.__version__)
