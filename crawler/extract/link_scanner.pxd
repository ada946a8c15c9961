# The C types of the scanner's constants, fields and methods.

from crawler.extract.tag_reader cimport TagReader

cdef int BEFORE_HEAD, IN_HEAD, IN_NOSCRIPT, AFTER_HEAD, IN_BODY
cdef int CLOSED, OPEN, UNCERTAIN

cdef class LinkScanner(TagReader):
    cdef int phase
    cdef int templates
    cdef int place
    cdef int section
    cdef bint is_whole
    cdef bint has_hidden_link
    cdef bint has_marker
    cdef readonly bint has_template
    cdef list tables
    cdef list foreign
    cdef bytes title
    cdef object found
    cdef dict hrefs
    cdef Py_ssize_t links_max
    cdef bint skips_nofollow
    cdef object others
    cdef bint has_html
    cdef bint has_form
    cdef int select
    cdef Py_ssize_t met_places[256]
    cdef Py_ssize_t met_sizes[256]

    cdef bint _start(self) except -1
    cdef bint _end(self) except -1
    cdef bint _in_template(self, int element) except -1
    cdef bint _insert(self, int element) except -1
    cdef bint _take(self, int element) except -1
    cdef bint _take_others(self, int element) except -1
    cdef _hand_over(self, bint foreign)
    cdef _note_select(self, int element, bint starts)
    cdef object _href(self)
    cdef bint _is_repeated(self) noexcept
    cdef _add(self, str raw_url)
    cdef bint _is_searched(self) except -1
    cdef bint _raw_text(self, int element) except -1
    cdef bint _before_body(self, int element) except -1
    cdef _end_before_body(self, int element)
    cdef bint _is_misplaced(self, int element) except -1
    cdef bint _table_start(self, int element) except -1
    cdef _table_end(self, int element)
    cdef bint _foreign_start(self, int element) except -1
    cdef bint _foreign_end(self, int element) except -1
