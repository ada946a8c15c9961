from crawler.frontier.refresh.tables cimport Tables

cdef int RUNGS

cdef class Absences:
    cdef Tables tables
    cdef double saved
    cdef Py_ssize_t unseen
    cdef Py_ssize_t hand
    cdef list recalling
    cdef double _first
    cdef double _longest
    cdef double _factor
    cdef double _turn
    cdef double wait(self, int rung) noexcept
    cdef double wait_refused(self, int rung) noexcept
    cdef int rung_of(self, double wait) noexcept
    cdef double recall_pause(self, int host) noexcept
    cdef int next_rung(self, unsigned int state, bint denied) noexcept
    cdef void note_take(self) noexcept
    cdef bint may_fetch(self, int page, int host, double now) noexcept
    cdef void note_absence(self, int host, unsigned int state, double now) noexcept
    cdef void note_answer(self, int host, double now) except *
    cdef void note_return(self, int host, unsigned int state) except *
    cdef void add_credit(self, int host) noexcept
    cdef void recall(self, int host, int away_rung, int failed_rung) except *
    cdef void end_recalls(self) except *
