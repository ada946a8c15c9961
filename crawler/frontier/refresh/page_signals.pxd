from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.flights cimport Flights
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.tables cimport Tables

cdef Py_ssize_t SLICE

cdef class Signals:
    cdef Tables tables
    cdef Deadlines deadlines
    cdef Queues queues
    cdef Learning learning
    cdef Flights flights
    cdef double _discard
    cdef object _backlog
    cdef readonly Py_ssize_t waiting
    cdef void work_off(self, Py_ssize_t most, double now) except *
    cdef void _note(self, int page, double now, unsigned int source) except *
    cdef void _recall(self, int page, int host, double now, unsigned int source) except *
