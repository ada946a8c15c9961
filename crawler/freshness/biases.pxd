cdef class Biases:
    cdef readonly double bias
    cdef readonly double silent_bias
    cdef readonly double plain_bias
    cdef double plain_found
    cdef double plain_told
    cdef double found
    cdef double told
    cdef double silent_found
    cdef double silent_told
    cdef double put_right(self, double expected) noexcept
    cdef void observe(self, double hazard, bint changed) noexcept
    cdef void observe_silent(self, double hazard, double signalled, bint changed) noexcept
    cdef void observe_plain(self, double hazard, bint changed) noexcept
    cdef double put_plain(self, double expected) noexcept
