from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.exploration cimport Exploration
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.steering cimport Steering
from crawler.frontier.refresh.tables cimport Tables

cdef class Overview:
    cdef Tables _tables
    cdef Steering _steering
    cdef Deadlines _deadlines
    cdef Queues _queues
    cdef Exploration _exploration
    cdef Learning _learning
    cdef dict _held
    cdef object _touched
    cdef object _backlog
    cdef readonly object settings
    cdef readonly Py_ssize_t takes
    cdef readonly Py_ssize_t waiting_signals
    cpdef double next_wakeup(self, double now) except? -1
    cdef void _instant(self, double now) except *
    cdef void _require(self, Py_ssize_t page) except *
    cdef void _require_host(self, Py_ssize_t host) except *
    cdef double _fresh(self, double clock, double n) noexcept
    cdef bint _is_free(self, int page) except? -1
