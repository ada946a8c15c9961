cdef class Biases:
    cdef readonly double bias
    cdef readonly double silent_bias
    cdef double found
    cdef double told
    cdef double silent_found
    cdef double silent_told
    cdef double put_right(self, double expected) noexcept
    cdef void observe(self, double hazard, double silent_hazard, double signalled, bint changed) noexcept
    cdef void shorten(self) noexcept
