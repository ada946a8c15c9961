from crawler.frontier.refresh.absences cimport Absences
from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.first_pages cimport FirstPages
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.tables cimport Tables

cdef class Queues:
    cdef Tables tables
    cdef LevelController controller
    cdef Deadlines deadlines
    cdef FirstPages first_pages
    cdef Absences absences
    cdef double retry_age
    cdef int eligible
    cdef int waiting
    cdef int withheld
    cdef int postponed
    cdef Py_ssize_t swept
    cdef double swept_level
    cdef readonly Py_ssize_t checks
    cdef int first(self, double now) except? -2
    cdef int _leader(self, int host, double now) except? -2
    cdef int _first_by_value(self, int directory, int host, double due, double now) except? -2
    cdef void release_young(self, int page, double now) except *
    cdef bint _verify(self, int page, int host, double now) except? -1
    cdef void release(self, double now) except *
    cdef void _release_away(self, int page, double now) except *
    cdef void put_back(self, int page, double now) except *
    cdef void recall(self, double now) except *
    cdef void sweep(self, Py_ssize_t rows, double now) except *
    cdef void place(self, int page, double now) except *
    cdef void reschedule(self, int page, double now) except *
    cdef void withhold(self, int page, double until) except *
    cdef void leave(self, int page, double now) except *
    cdef void move(self, int page, double key, double now) except *
    cdef void settle(self, int page, double now) except *
    cdef bint _withhold_early(self, int page, double now) except? -1
    cdef void _set_key(self, int directory, double due, double now) except *
    cdef void place_directory(self, int directory, double now) except *
    cdef void place_host(self, int host, double now) except *
    cdef void _enter_due(self, int page, double now) except *
    cdef void _enter(self, int page, double key, double now) except *
