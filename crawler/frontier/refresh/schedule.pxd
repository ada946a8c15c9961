from crawler.freshness.learning cimport Learning
from crawler.frontier.refresh.absences cimport Absences
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.exploration cimport Exploration
from crawler.frontier.refresh.flights cimport Flights
from crawler.frontier.refresh.overview cimport Overview
from crawler.frontier.refresh.pace cimport Pace
from crawler.frontier.refresh.page_facts cimport Facts
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.schedule_records cimport Records
from crawler.frontier.refresh.page_signals cimport Signals
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.tables cimport Tables

cdef class Schedule:
    cdef readonly object settings
    cdef readonly Signals signals
    cdef readonly Overview overview
    cdef readonly Facts facts
    cdef readonly Pace pace
    cdef readonly Records records
    cdef public object set_back
    cdef Flights _flights
    cdef Tables _tables
    cdef LevelController _controller
    cdef Deadlines _deadlines
    cdef Absences _absences
    cdef Queues _queues
    cdef Exploration _exploration
    cdef Learning _learning
    cpdef int peek(self, double now) except? -1
    cpdef int claim_next(self, double now) except? -1
    cpdef double next_wakeup(self, double now) except? -1
    cdef void _add_all(self, list columns, int[::1] numbers, double now) except *
    cdef Py_ssize_t _put_rows(self, list columns, int[::1] numbers) except? -1
