from crawler.freshness.value_kernel cimport Parameters

cdef class Columns:
    cdef Py_ssize_t kind
    cdef Py_ssize_t terms
    cdef Py_ssize_t count
    cdef const double[::1] importance
    cdef const double[::1] change_rate
    cdef const double[::1] silent_rate
    cdef const double[::1] signal_rate
    cdef const double[::1] false_rate
    cdef const double[::1] signal_weight
    cdef Parameters _page
    cdef Parameters page(self, Py_ssize_t i)
