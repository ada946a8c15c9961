from crawler.frontier.refresh.deadlines cimport Deadlines
from crawler.frontier.refresh.queues cimport Queues
from crawler.frontier.refresh.level_controller cimport LevelController
from crawler.frontier.refresh.tables cimport Tables

cdef class Exploration:
    cdef Tables tables
    cdef LevelController controller
    cdef Deadlines deadlines
    cdef Queues queues
    cdef double _share
    cdef double _credit
    cdef Py_ssize_t _hands[2]
    cdef Py_ssize_t _turns
    cdef readonly Py_ssize_t explored
    cdef void note_take(self, double now) except *
    cdef void _turn(self, double now) except *
    cdef int _best(self, int hand, double now) noexcept
    cdef double _restless(self, int page, double now) noexcept
    cdef bint _may_explore(self, int page, double now) noexcept
    cdef double _lesson(self, int page, int host, double now) noexcept
