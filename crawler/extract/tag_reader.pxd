# The C types of the reader's constants, fields and methods. Only reading of values can fail, for want of memory.

cdef int NOTHING, START, END, BLANK, TEXT, NUL
cdef int OTHER, A, AREA, LINK, META, BASE, INPUT, IFRAME, TITLE, TEXTAREA, STYLE, SCRIPT, XMP, NOEMBED, NOFRAMES
cdef int NOSCRIPT, BASEFONT, BGSOUND, HTML, HEAD, BODY, BR, P, FORM, TEMPLATE, FRAME, FRAMESET, SVG, MATH, PLAINTEXT
cdef int OBJECT, APPLET, MARQUEE, SELECT, OPTION, OPTGROUP, IMAGE, TABLE, CAPTION, COL, COLGROUP, TBODY, TFOOT, THEAD, TR, TD, TH
cdef int HREF, REL, SRC, CONTENT, NAME, HTTP_EQUIV, TYPE

cdef class TagReader:
    cdef bytes content
    cdef const unsigned char *text
    cdef Py_ssize_t at
    cdef Py_ssize_t end
    cdef bint in_foreign
    cdef bint sees_text
    cdef bint skips_others
    cdef int before
    cdef int element
    cdef Py_ssize_t tag_at
    cdef Py_ssize_t tag_end
    cdef bint closed
    cdef int seen
    cdef Py_ssize_t href_at
    cdef Py_ssize_t href_end
    cdef object rel
    cdef object src
    cdef object content_value
    cdef object name
    cdef object http_equiv
    cdef object type
    cdef Py_ssize_t name_at
    cdef Py_ssize_t name_end
    cdef Py_ssize_t value_at
    cdef Py_ssize_t value_end
    cdef dict wanted
    cdef dict attributes
    cdef unsigned int wanted_lengths[32]

    cdef int next_tag(self) except -1
    cdef Py_ssize_t skip_raw_text(self, int element) except -2
    cdef Py_ssize_t find(self, int character, Py_ssize_t begin) noexcept
    cdef void _see_text(self, Py_ssize_t begin, Py_ssize_t end) noexcept
    cdef bint _other_markup(self, unsigned char character) except -1
    cdef bint _declaration(self) except -1
    cdef bint _bogus_comment(self) noexcept
    cdef bint _until(self, int character, bint bang) noexcept
    cdef int _tag_name(self) noexcept
    cdef bint _attributes(self, bint noted) except -1
    cdef bint _attribute(self) noexcept
    cdef bint _attribute_value(self, Py_ssize_t at) noexcept
    cdef _note(self)
    cdef _keep_wanted(self)
    cdef bint _is_new(self, int attribute, bytes name) except -1
    cdef object value(self, Py_ssize_t begin, Py_ssize_t end)
    cdef bint _is_tag(self, Py_ssize_t begin, bytes name, Py_ssize_t size) noexcept
    cdef bint _is(self, Py_ssize_t begin, bytes name) noexcept
